{{/* A ServiceAccount; call with (list $ "suffix of its name" "component"). */}}
{{- define "gangline.account" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "gangline.serviceAccount" $root }}{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "gangline.labels" (list $root (index . 2)) | nindent 4 }}
  {{- with $root.Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Binds a role to the ServiceAccount of a component.
     Call with (dict "root" $ "kind" "Role" or "ClusterRole" "name" name "namespace" namespace "suffix" suffix). */}}
{{- define "gangline.binding" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- if eq .kind "Role" }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  {{- end }}
  labels: {{- include "gangline.labels" (list .root "") | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .name }}}
subjects:
  - kind: ServiceAccount
    name: {{ include "gangline.serviceAccount" .root }}{{ .suffix }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The namespaces of the plugin Defragmentation's ConfigMaps, as JSON, each with whether the plugin moves pods by itself. */}}
{{- define "gangline.defragmentation" -}}
{{- $found := dict -}}
{{- range (include "gangline.profiles" . | fromJson).items -}}
{{- if contains "\"Defragmentation\"" (toJson .plugins) -}}
{{- $args := dict -}}
{{- range .pluginConfig -}}
{{- if eq .name "Defragmentation" }}{{ $args = .args | default dict }}{{ end -}}
{{- end -}}
{{- $namespace := $args.namespace | default "kube-system" -}}
{{- $_ := set $found $namespace (or (gt (float64 ($args.intervalSeconds | default 0)) 0.0) (get $found $namespace | default false)) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}
