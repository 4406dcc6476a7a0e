{{- define "gpu-rules.base" -}}
{{- if not (hasKey .Values.rules "mode") -}}
{{- fail "values of this version of the chart are missing: in place of --reuse-values, use --reset-then-reuse-values or pass your values again" -}}
{{- end -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-rules.name" -}}
{{- $base := include "gpu-rules.base" . -}}
{{- $joined := printf "%s-%s" .Release.Name $base -}}
{{- .Values.fullnameOverride | default (contains $base .Release.Name | ternary .Release.Name $joined) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-rules.selector" -}}
app.kubernetes.io/name: {{ include "gpu-rules.base" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-rules.commonLabels" -}}
{{- merge dict .Values.commonLabels (.Values.global.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- define "gpu-rules.labels" -}}
{{ include "gpu-rules.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with include "gpu-rules.commonLabels" . | fromYaml }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Pods of the doctor have another name, since the server's Service and policies select theirs by it. */ -}}
{{- define "gpu-rules.doctorSelector" -}}
app.kubernetes.io/name: {{ include "gpu-rules.base" . }}-doctor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpu-rules.testSelector" -}}
app.kubernetes.io/name: {{ include "gpu-rules.base" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Labels of pods: a list of the values and the name of the template of their selector. */ -}}
{{- define "gpu-rules.podLabels" -}}
{{- $root := first . -}}
{{- merge (include (last .) $root | fromYaml) $root.Values.podLabels (include "gpu-rules.labels" $root | fromYaml) | toYaml -}}
{{- end -}}

{{- define "gpu-rules.image" -}}
{{- $image := .Values.image -}}
{{- with .Values.global.imageRegistry | default $image.registry }}{{ . }}/{{ end -}}
{{ $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- /* Members of a pod's spec that all pods of the chart have. */ -}}
{{- define "gpu-rules.podSpec" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with concat .Values.image.pullSecrets (.Values.global.imagePullSecrets | default list) }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
# No user: the image has one, and OpenShift chooses its own.
securityContext:
  {{- merge dict .Values.podSecurityContext (dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault")) | toYaml | nindent 2 }}
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

{{- /* The rule files in rules by name, in JSON: toYaml would cut the end of the last one. */ -}}
{{- define "gpu-rules.own" -}}
{{- omit .Values.rules "sets" "mode" "namespaces" | toJson -}}
{{- end -}}

{{- /* The namespace of helm test. */ -}}
{{- define "gpu-rules.testNamespace" -}}
{{- .Values.helmTest.namespace | default (first .Values.rules.namespaces) | default "default" -}}
{{- end -}}

{{- /* Rule files by name: those of rules, and those of the packaged sets in rules.sets. */ -}}
{{- define "gpu-rules.files" -}}
{{- $files := include "gpu-rules.own" . | fromJson -}}
{{- range $set := .Values.rules.sets -}}
{{- range $path, $bytes := $.Files.Glob (printf "files/sets/%s/*.yaml" $set) -}}
{{- $name := printf "%s-%s" $set (base $path) -}}
{{- if hasKey $files $name -}}
{{- fail (printf "rules has a file %s, and so has the set %s: rename yours" $name $set) -}}
{{- end -}}
{{- $_ := set $files $name (toString $bytes) -}}
{{- end -}}
{{- end -}}
{{- $files | toYaml -}}
{{- end -}}

{{- /* Webhook settings and permissions of the sets in rules.sets, as gpu-rules webhook-config derives them. */ -}}
{{- define "gpu-rules.setsDerived" -}}
{{- $packaged := .Files.Get "files/sets.yaml" | fromYaml -}}
{{- $names := keys $packaged.sets | sortAlpha | join ", " -}}
{{- $advice := printf "the packaged sets are %s; gpu-rules sets suggest --cluster kubeconfig names those for the cards of your nodes" $names -}}
{{- if not .Values.rules.sets -}}
{{- fail (printf "no rules are chosen: set rules.sets, or your own rules (docs/how-to/deploy.md): %s" $advice) -}}
{{- end -}}
{{- $chosen := list -}}
{{- range .Values.rules.sets -}}
{{- if not (hasKey $packaged.sets .) -}}
{{- fail (printf "rules.sets has %s, but %s" . $advice) -}}
{{- end -}}
{{- $chosen = append $chosen (get $packaged.sets .) -}}
{{- end -}}
{{- $webhook := dict -}}
{{- range $endpoint := list "mutating" "validating" -}}
{{- $operations := list -}}{{- $resources := list -}}{{- $globs := dict -}}{{- $denies := list -}}
{{- range $chosen -}}
{{- $calls := get .webhook $endpoint -}}
{{- $operations = concat $operations $calls.operations | uniq -}}
{{- $resources = concat $resources $calls.names | uniq | sortAlpha -}}
{{- $globs = merge $globs $calls.globs -}}
{{- $denies = concat $denies $calls.denies | uniq | sortAlpha -}}
{{- end -}}
{{- $kind := ternary (ternary "both" "globs" (gt (len $resources) 0)) "names" (gt (len $globs) 0) -}}
{{- $tests := list -}}
{{- range keys $globs | sortAlpha }}{{ $tests = append $tests (get $globs .) }}{{ end -}}
{{- $named := get $packaged.conditions $kind | replace "['NAME']" (printf "['%s']" (join "', '" $resources)) -}}
{{- $expression := $named | replace "name.startsWith('GLOB')" (join " || " $tests) -}}
{{- $condition := dict "name" "requests-a-resource-of-a-rule" "expression" $expression -}}
{{- /* The text that Calls.digest hashes (rules_engine/exports/configuration.py). */ -}}
{{- $content := printf "[\"%s\", [], null]" (title $endpoint) -}}
{{- if $operations -}}
{{- $content = printf "[\"%s\", [\"%s\"], %s]" (title $endpoint) (join "\", \"" $operations) (toRawJson $expression) -}}
{{- end -}}
{{- $_ := set $webhook $endpoint (dict "operations" $operations "matchConditions" (ternary (list $condition) list (gt (len $operations) 0)) "digest" (printf "sha256:%s" (sha256sum $content)) "denies" $denies) -}}
{{- end -}}
{{- $rbac := dict -}}
{{- range $key := list "nodes" "pods" "namespaces" "classes" -}}
{{- $needed := false -}}
{{- range $chosen }}{{ $needed = or $needed (get .rbac $key) }}{{ end -}}
{{- $_ := set $rbac $key $needed -}}
{{- end -}}
{{- dict "webhook" $webhook "rbac" $rbac | toYaml -}}
{{- end -}}

{{- /* Settings that follow from the rules: values override those of the packaged sets. */ -}}
{{- define "gpu-rules.derived" -}}
{{- $own := include "gpu-rules.own" . | fromJson -}}
{{- $command := "gpu-rules webhook-config --rules FOLDER --output helm-values" -}}
{{- $sets := .Values.rules.sets | default list | sortAlpha | join ", " -}}
{{- $generated := .Values.webhook.sets | default list | sortAlpha | join ", " -}}
{{- if and (or $own $generated) (ne $sets $generated) -}}
{{- fail (printf "rules.sets has %s, but the webhook values were generated for %s: generate both by %s, with --rules set:NAME for each set, and leave rules.sets out of your other values" ($sets | default "no sets") ($generated | default "rule files without sets") $command) -}}
{{- end -}}
{{- $derived := dict "webhook" (dict "mutating" dict "validating" dict) "rbac" dict -}}
{{- if not $own -}}
{{- $derived = include "gpu-rules.setsDerived" . | fromYaml -}}
{{- end -}}
{{- range $endpoint := list "mutating" "validating" -}}
{{- $values := get $.Values.webhook $endpoint -}}
{{- if and $own (or (kindIs "invalid" $values.operations) (kindIs "invalid" $values.matchConditions)) -}}
{{- fail (printf "rules is set but webhook.%s is not: also pass the output of %s to helm" $endpoint $command) -}}
{{- end -}}
{{- range $key := list "operations" "matchConditions" "otherPods" "digest" "denies" -}}
{{- if not (kindIs "invalid" (index $values $key)) -}}
{{- $_ := set (get $derived.webhook $endpoint) $key (index $values $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := list "nodes" "pods" "namespaces" "classes" -}}
{{- if not (kindIs "invalid" (index $.Values.rbac $key)) -}}
{{- $_ := set $derived.rbac $key (index $.Values.rbac $key) -}}
{{- else if and $own (ne $key "classes") -}}{{- /* Values of earlier versions have no classes. */ -}}
{{- fail (printf "rules is set but rbac.%s is not: also pass the output of %s to helm" $key $command) -}}
{{- end -}}
{{- end -}}
{{- $checked := $derived.webhook.validating -}}
{{- if and (eq .Values.rules.mode "Audit") $derived.webhook.mutating.operations (has "CREATE" $checked.operations) -}}
{{- /* The stored pod lacks the changes for which the first condition would select it (derive_calls with audit). */ -}}
{{- $lists := list $checked.matchConditions $derived.webhook.mutating.matchConditions -}}
{{- with $derived.webhook.mutating.otherPods }}{{ $lists = append $lists . }}{{ end -}}
{{- $name := "requests-a-resource-of-a-rule" -}}
{{- $texts := list -}}{{- $conditions := list -}}
{{- range $lists -}}
{{- range . }}{{ if eq .name $name }}{{ $texts = append $texts (printf "(%s)" .expression) }}{{ end }}{{ end -}}
{{- end -}}
{{- range $checked.matchConditions }}{{ if ne .name $name }}{{ $conditions = append $conditions . }}{{ end }}{{ end -}}
{{- if eq (len $texts) (len $lists) -}}
{{- $conditions = append $conditions (dict "name" $name "expression" (join " || " $texts)) -}}
{{- end -}}
{{- $_ := set $checked "matchConditions" $conditions -}}
{{- end -}}
{{- /* No pod depends on a server in mode Audit. */ -}}
{{- range $endpoint := list "mutating" "validating" -}}
{{- $policy := ternary "Ignore" (get $.Values.webhook $endpoint).failurePolicy (eq $.Values.rules.mode "Audit") -}}
{{- $_ := set (get $derived.webhook $endpoint) "failurePolicy" $policy -}}
{{- end -}}
{{- $derived | toYaml -}}
{{- end -}}
