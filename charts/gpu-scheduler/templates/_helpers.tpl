{{/* The fixed name that the names of all objects begin with. */}}
{{- define "gangline.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default .Chart.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of every object; call with (list $ "scheduler"), or (list $ "") for what belongs to all components. */}}
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

{{/* The scheduler's ServiceAccount; those of the other components begin with its name. */}}
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

{{/* The profiles, as JSON {"items": [...]}. One without a name is called scheduler.name, and left out where another one
     has that name. Where the runtime enforces, pods go to nodes alone whose agent reports what there is to show. */}}
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
{{- if eq .name "GpuClaim" }}{{ $args = merge (.args | default dict) $args }}{{ else }}{{ $others = append $others . }}{{ end -}}
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

{{/* The fields of every pod's spec that do not differ; call with (list $ "component"). */}}
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

{{/* Where the components are asked for health and metrics. */}}
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

{{/* The probes of a server; one that starts slowly is given a minute.
     Call with (list "name of its port" livenessProbe readinessProbe), of which an empty one means the chart's. */}}
{{- define "gangline.probes" -}}
{{- $port := index . 0 -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ $port }}}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe: {{- toYaml (index . 1 | default (dict "httpGet" (dict "path" "/healthz" "port" $port) "periodSeconds" 15 "timeoutSeconds" 5)) | nindent 2 }}
readinessProbe: {{- toYaml (index . 2 | default (dict "httpGet" (dict "path" "/readyz" "port" $port) "periodSeconds" 5 "timeoutSeconds" 3)) | nindent 2 }}
{{- end -}}
