{{/* The pod that makes or renews the webhook's certificate.
     Call with (dict "root" $ "account" serviceAccountName "registered" whether the API server already knows the webhook). */}}
{{- define "gangline.certsPod" -}}
{{- $root := .root -}}
{{- $webhook := printf "%s-webhook" (include "gangline.name" $root) -}}
{{- with $root.Values.webhook.certificates }}
{{- if ge (int .renewBeforeDays) (int .days) }}
{{- fail (printf "webhook.certificates.renewBeforeDays: %v must be less than days, %v" .renewBeforeDays .days) }}
{{- end }}
{{- end -}}
metadata:
  labels: {{- include "gangline.podLabels" (list $root (printf "%s-certs" (include "gangline.name" $root)) "certs") | nindent 4 }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ .account }}
  securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: certs
      {{- include "gangline.image" (list $root $root.Values.webhook.image) | nindent 6 }}
      command: [gangline]
      args:
        - certs
        - ensure
        - --namespace={{ $root.Release.Namespace }}
        - --service={{ $webhook }}
        - --secret={{ include "gangline.certSecret" $root }}
        - --days={{ $root.Values.webhook.certificates.days }}
        {{- if .registered }}
        - --renew-before={{ $root.Values.webhook.certificates.renewBeforeDays }}
        - --mutating-webhook={{ $webhook }}
        - --validating-webhook={{ $webhook }}
        {{- else }}
        - --renew-before=0  # keep a working certificate: the API server would not trust a new one yet
        {{- end }}
      resources:
        requests: {cpu: 50m, memory: 64Mi}
        limits: {memory: 192Mi}
      securityContext: {{- toYaml $root.Values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 16Mi}
{{- end -}}

{{/* The rights of `certs ensure` on Secrets. RBAC cannot restrict create to a name. */}}
{{- define "gangline.certsRules" -}}
- {apiGroups: [""], resources: [secrets], verbs: [create]}
- {apiGroups: [""], resources: [secrets], resourceNames: [{{ include "gangline.certSecret" . }}], verbs: [get, patch]}
{{- end -}}
