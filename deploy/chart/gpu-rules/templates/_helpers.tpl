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

{{- /* Settings that follow from the rules: values override files/webhook.yaml, which is for the packaged set. */ -}}
{{- define "gpu-rules.derived" -}}
{{- $derived := .Files.Get "files/webhook.yaml" | fromYaml -}}
{{- $given := dict "mutating" .Values.webhook.mutating "validating" .Values.webhook.validating -}}
{{- range $endpoint, $values := $given -}}
{{- if and $.Values.rules (or (kindIs "invalid" $values.operations) (kindIs "invalid" $values.matchConditions)) -}}
{{- fail (printf "rules is set but webhook.%s is not: also pass the output of gpu-rules webhook-config --rules FOLDER --output helm-values to helm" $endpoint) -}}
{{- end -}}
{{- if $.Values.rules -}}
{{- $_ := set (get $derived.webhook $endpoint) "denies" list -}}
{{- end -}}
{{- range $key := list "operations" "matchConditions" "digest" "denies" -}}
{{- if not (kindIs "invalid" (get $values $key)) -}}
{{- $_ := set (get $derived.webhook $endpoint) $key (get $values $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := list "nodes" "pods" "namespaces" -}}
{{- if not (kindIs "invalid" (get $.Values.rbac $key)) -}}
{{- $_ := set $derived.rbac $key (get $.Values.rbac $key) -}}
{{- else if $.Values.rules -}}
{{- fail (printf "rules is set but rbac.%s is not: also pass the output of gpu-rules webhook-config --rules FOLDER --output helm-values to helm" $key) -}}
{{- end -}}
{{- end -}}
{{- $derived | toYaml -}}
{{- end -}}
