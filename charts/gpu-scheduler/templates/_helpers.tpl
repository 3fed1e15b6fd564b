{{/* The fixed name that the names of all objects begin with. */}}
{{- define "gangline.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default .Chart.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of every object; call with (list $ "scheduler"), or (list $ "") for objects of all components. */}}
{{- define "gangline.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/name: gangline
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels of a component's pods, the first of which selects them; call with (list $ "app" "component"). */}}
{{- define "gangline.podLabels" -}}
{{- $root := index . 0 -}}
app: {{ index . 1 }}
app.kubernetes.io/name: gangline
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 2 }}
{{- with $root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The image of a component; call with (list $ override). */}}
{{- define "gangline.image" -}}
{{- $root := index . 0 -}}
{{- $image := merge (dict) (index . 1) $root.Values.image -}}
image: "{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}"
imagePullPolicy: {{ $image.pullPolicy }}
{{- end -}}

{{/* The scheduler's ServiceAccount; the names of the other ServiceAccounts begin with its name. */}}
{{- define "gangline.serviceAccount" -}}
{{- .Values.serviceAccount.name | default .Values.serviceAccountName | default (include "gangline.name" .) -}}
{{- end -}}

{{- define "gangline.priorityClassName" -}}
{{- .Values.priorityClassName | default (ternary .Values.priorityClass.name "" .Values.priorityClass.create) -}}
{{- end -}}

{{/* The namespace of the leader's Lease. */}}
{{- define "gangline.leaseNamespace" -}}
{{- .Values.leaderElection.resourceNamespace | default .Release.Namespace -}}
{{- end -}}

{{/* The Secret with the webhook's certificate. */}}
{{- define "gangline.certSecret" -}}
{{- .Values.webhook.certificates.secretName | default (printf "%s-webhook-cert" (include "gangline.name" .)) -}}
{{- end -}}

{{- define "gangline.selfSigned" -}}
{{- if and .Values.webhook.enabled (eq .Values.webhook.certificates.mode "self-signed") -}}true{{- end -}}
{{- end -}}

{{/* The profiles, as JSON {"items": [...]}. A profile without a name gets scheduler.name, and is left out if another profile
     has that name. If the container runtime enforces, pods go only to nodes whose agent reports the GPUs. */}}
{{- define "gangline.profiles" -}}
{{- $taken := list -}}
{{- range .Values.profiles }}{{ $taken = append $taken (.schedulerName | default "") }}{{ end -}}
{{- $profiles := list -}}
{{- range .Values.profiles -}}
{{- if or .schedulerName (not (has $.Values.scheduler.name $taken)) -}}
{{- $profile := merge (dict "schedulerName" (.schedulerName | default $.Values.scheduler.name)) (deepCopy .) -}}
{{- if and (eq $.Values.webhook.enforcement "runtime") (contains "\"GpuClaim\"" (toJson .plugins)) -}}
{{- $args := dict "requireReport" true -}}
{{- $others := list -}}
{{- range $profile.pluginConfig -}}
{{- if eq .name "GpuClaim" }}{{ $args = mergeOverwrite $args (.args | default dict) }}{{ else }}{{ $others = append $others . }}{{ end -}}
{{- end -}}
{{- $_ := set $profile "pluginConfig" (append $others (dict "name" "GpuClaim" "args" $args)) -}}
{{- end -}}
{{- $profiles = append $profiles $profile -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "items" $profiles) -}}
{{- end -}}

{{/* The names of all profiles, as a JSON list. */}}
{{- define "gangline.schedulerNames" -}}
{{- $names := list -}}
{{- range (include "gangline.profiles" . | fromJson).items -}}
{{- $names = append $names .schedulerName -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The fields that the specs of all pods have in common; call with (list $ "component"). */}}
{{- define "gangline.podSpec" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "gangline.serviceAccount" $root }}{{ with index . 1 }}-{{ . }}{{ end }}
securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "gangline.priorityClassName" $root }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Where the scheduler and the webhook run; call with (list $ "app label"). */}}
{{- define "gangline.placement" -}}
{{- $values := (index . 0).Values -}}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- $app := index . 1 }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: {{ $app }}}}
{{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Annotations of a pod that serves metrics; call with (list $ more). */}}
{{- define "gangline.podAnnotations" -}}
{{- $values := (index . 0).Values -}}
{{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" "10259" "prometheus.io/scheme" "https" -}}
{{- if $values.metrics.plain -}}
{{- $scrape = dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080" -}}
{{- end -}}
{{- toYaml (merge (dict) $values.podAnnotations (index . 1) (ternary $scrape dict $values.metrics.scrapeAnnotations)) -}}
{{- end -}}

{{/* The options with the addresses for health and metrics. */}}
{{- define "gangline.listening" -}}
- --listen=0.0.0.0:8080
- --secure-listen=0.0.0.0:10259
{{- if .Values.metrics.plain }}
- --plain-metrics
{{- end }}
{{- end -}}

{{- define "gangline.logging" -}}
- --log-level={{ .Values.logging.level }}
- --log-format={{ .Values.logging.format }}
{{- end -}}

{{/* The probes of a server, which has a minute to start.
     Call with (list "name of its port" livenessProbe readinessProbe); an empty probe means the chart's own. */}}
{{- define "gangline.probes" -}}
{{- $port := index . 0 -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $port }}}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe: {{- toYaml (index . 1 | default (dict "httpGet" (dict "path" "/healthz" "port" $port) "periodSeconds" 15 "timeoutSeconds" 5)) | nindent 2 }}
readinessProbe: {{- toYaml (index . 2 | default (dict "httpGet" (dict "path" "/readyz" "port" $port) "periodSeconds" 5 "timeoutSeconds" 3)) | nindent 2 }}
{{- end -}}

{{/* The address of the section about an alert; call with (list $ "Alert"). */}}
{{- define "gangline.runbook" -}}
{{- printf "%s#%s" (index . 0).Values.metrics.prometheusRule.runbooks (index . 1 | lower) | quote -}}
{{- end -}}
