{{/* The annotation gpu-scheduling-map: one line for each pod. */}}
{{- define "gpu-scheduler-check.schedulingMap" -}}
{{- range .Values.gpuScheduling.schedulingMap }}
{{ int .podIndex }}={{ .nodeName }}:{{ .gpuDevices }}
{{- end }}
{{- end }}

{{- define "gpu-scheduler-check.labels" -}}
app.kubernetes.io/name: gpu-scheduler-check
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
