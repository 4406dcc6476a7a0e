{{- /* Refuse values that are valid one by one, but together make a deployment that cannot run or does harm. */ -}}
{{- define "gpu-rules.validate" -}}
{{- $metrics := .Values.metrics -}}
{{- $server := .Values.server -}}
{{- $tls := .Values.tls.mode -}}
{{- $caBundle := .Values.webhook.caBundle -}}
{{- if and .Values.clientCA.configMap (not $metrics.enabled) -}}
{{- fail "clientCA.configMap requires metrics.enabled: the kubelet has no client certificate for probes of the TLS listener" -}}
{{- end -}}
{{- if and (or $metrics.serviceMonitor.enabled $metrics.alerts.enabled) (not $metrics.enabled) -}}
{{- fail "metrics.serviceMonitor and metrics.alerts need metrics.enabled" -}}
{{- end -}}
{{- range list "decisionLogMessages" "decisionLogRequests" -}}
{{- if and (index $server .) (not $server.decisionLog) -}}
{{- fail (printf "server.%s requires server.decisionLog" .) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $tls "existingSecret") (not $caBundle) -}}
{{- fail "tls.mode existingSecret requires webhook.caBundle: the CA of its certificate, as base64-encoded PEM" -}}
{{- else if and $caBundle (ne $tls "existingSecret") -}}
{{- fail (printf "webhook.caBundle is set, but tls.mode %s writes another one: remove it, or set tls.mode existingSecret" $tls) -}}
{{- else if and $caBundle (or (contains "PRIVATE KEY" (b64dec $caBundle)) (not (contains "-----BEGIN CERTIFICATE-----" (b64dec $caBundle)))) -}}
{{- fail "webhook.caBundle must be base64-encoded PEM of certificates, without a private key" -}}
{{- end -}}
{{- if and .Values.webhook.native (not .Values.webhook.sets) (eq (include "gpu-rules.own" .) "{}") -}}
{{- fail "webhook.native requires the values that gpu-rules webhook-config --native --rules FOLDER --output helm-values prints; for a packaged set, pass set:NAME as FOLDER" -}}
{{- end -}}
{{- if and .Values.webhook.native (or (eq .Values.rules.mode "Audit") .Values.rules.namespaces) -}}
{{- fail "webhook.native is set, with rules.mode Audit or rules.namespaces: exported policies enforce in all namespaces, and know neither" -}}
{{- end -}}
{{- if and .Values.webhook.native (regexMatch "^v1[.]([0-9]|[12][0-9]|3[0-5])([.]|$)" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "webhook.native requires Kubernetes 1.36, not %s: helm template, which reads no cluster, assumes its own version unless it has --kube-version" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- $fails := list -}}
{{- range $endpoint, $calls := (include "gpu-rules.derived" . | fromYaml).webhook -}}
{{- if and $calls.operations (eq $calls.failurePolicy "Fail") -}}
{{- $fails = append $fails (printf "webhook.%s.failurePolicy" $endpoint) -}}
{{- end -}}
{{- end -}}
{{- if and $fails (eq (int .Values.replicas) 1) -}}
{{- fail (printf "%s Fail requires two replicas or more: while the only one restarts, no pod that a rule may apply to is created" (join " and " $fails)) -}}
{{- end -}}
{{- if and (eq $tls "existingSecret") (include "gpu-rules.connected" .) -}}
{{- $secret := include "gpu-rules.tlsSecret" . -}}
{{- $data := (lookup "v1" "Secret" .Release.Namespace $secret).data -}}
{{- if and $data (not (and (hasKey $data "tls.crt") (hasKey $data "tls.key"))) -}}
{{- fail (printf "Secret %s has no tls.crt and tls.key" $secret) -}}
{{- else if and $fails (not $data) -}}
{{- fail (printf "Secret %s not found in namespace %s: with %s Fail, no pod that a rule may apply to would be created until it exists" $secret .Release.Namespace (join " and " $fails)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.hostNetwork -}}
{{- if .Values.networkPolicy.apiServerCIDRs -}}
{{- fail "networkPolicy.apiServerCIDRs has no effect with hostNetwork: restrict the ports by the firewall of the nodes" -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.ports.https) (int .Values.ports.metrics) -}}
{{- fail "ports.https and ports.metrics must differ" -}}
{{- end -}}
{{- $tested := include "gpu-rules.testNamespace" . -}}
{{- $sent := .Values.rules.namespaces | default (list $tested) -}}
{{- if or (has $tested (append .Values.webhook.excludeNamespaces "kube-system")) (not (has $tested $sent)) -}}
{{- fail (printf "helmTest.namespace is %s, whose pods are not sent to the server: set another one" $tested) -}}
{{- end -}}
{{- range $labels, $given := dict "commonLabels" .Values.commonLabels "global.commonLabels" .Values.global.commonLabels "podLabels" .Values.podLabels -}}
{{- range $key, $value := $given -}}
{{- if regexMatch "^(app.kubernetes.io/(name|instance|version|managed-by)|helm.sh/chart)$" $key -}}
{{- fail (printf "%s must not have %s: the chart sets it, and its selectors use the name and instance" $labels $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $options := .Files.Get "files/options.yaml" | fromYaml | values | join "|" | replace "--" "" -}}
{{- $own := printf "^--(rules|mode|namespaces|keep-rules|cluster|declare|listen|metrics-listen|tls-[a-z]+|webhook-name|client-ca|decision-log|offers|%s)(=|$)" $options -}}
{{- range $server.extraArgs -}}
{{- if regexMatch $own . -}}
{{- fail (printf "server.extraArgs must not have %s: other values of the chart set this option" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* "true" if objects of the cluster can be looked up: not for helm template, and not in a namespace that is still created. */ -}}
{{- define "gpu-rules.connected" -}}
{{- if lookup "v1" "ServiceAccount" .Release.Namespace "default" }}true{{ end -}}
{{- end -}}
