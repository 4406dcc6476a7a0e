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

{{- /* Pods of the doctor have another name, since the server's Service and policies select theirs by it. */ -}}
{{- define "gpu-rules.doctorSelector" -}}
app.kubernetes.io/name: gpu-rules-doctor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-rules.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- /* Members of a pod's spec that all pods of the chart have. */ -}}
{{- define "gpu-rules.podSpec" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gpu-rules.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
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
{{- if not (kindIs "invalid" (index $values $key)) -}}
{{- $_ := set (get $derived.webhook $endpoint) $key (index $values $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := list "nodes" "pods" "namespaces" -}}
{{- if not (kindIs "invalid" (index $.Values.rbac $key)) -}}
{{- $_ := set $derived.rbac $key (index $.Values.rbac $key) -}}
{{- else if $.Values.rules -}}
{{- fail (printf "rules is set but rbac.%s is not: also pass the output of gpu-rules webhook-config --rules FOLDER --output helm-values to helm" $key) -}}
{{- end -}}
{{- end -}}
{{- $derived | toYaml -}}
{{- end -}}
