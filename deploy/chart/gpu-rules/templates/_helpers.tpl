{{- define "gpu-rules.name" -}}
{{- $joined := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- .Values.fullnameOverride | default (contains .Chart.Name .Release.Name | ternary .Release.Name $joined) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-rules.selector" -}}
app.kubernetes.io/name: gpu-rules
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-rules.labels" -}}
{{ include "gpu-rules.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "gpu-rules.tlsSecret" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "gpu-rules.name" .)) -}}
{{- end -}}

{{- /* What follows from the rules: values win over files/webhook.yaml, which is that of the packaged set. */ -}}
{{- define "gpu-rules.derived" -}}
{{- $derived := .Files.Get "files/webhook.yaml" | fromYaml -}}
{{- $given := dict "mutating" .Values.webhook.mutating "validating" .Values.webhook.validating -}}
{{- range $endpoint, $said := $given -}}
{{- if and $.Values.rules (or (kindIs "invalid" $said.operations) (kindIs "invalid" $said.matchConditions)) -}}
{{- fail (printf "rules are set, webhook.%s is not: give helm the output of gpu-rules webhook-config --rules FOLDER --output helm-values too" $endpoint) -}}
{{- end -}}
{{- if $.Values.rules -}}
{{- $_ := set (get $derived.webhook $endpoint) "denies" list -}}
{{- end -}}
{{- range $key := list "operations" "matchConditions" "digest" "denies" -}}
{{- if not (kindIs "invalid" (get $said $key)) -}}
{{- $_ := set (get $derived.webhook $endpoint) $key (get $said $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := list "nodes" "pods" "namespaces" -}}
{{- if not (kindIs "invalid" (get $.Values.rbac $key)) -}}
{{- $_ := set $derived.rbac $key (get $.Values.rbac $key) -}}
{{- else if $.Values.rules -}}
{{- fail (printf "rules are set, rbac.%s is not: give helm the output of gpu-rules webhook-config --rules FOLDER --output helm-values too" $key) -}}
{{- end -}}
{{- end -}}
{{- $derived | toYaml -}}
{{- end -}}
