{{/* A container that runs one command of the broker's image against the release's cluster. */}}
{{- define "headrace.testStep" -}}
{{- $secret := printf "%s-default-user" (include "headrace.clusterName" .root) }}
{{- $given := (default dict .root.Values.cluster.spec.defaultUser).secretName }}
name: {{ .step.name }}
image: {{ include "headrace.image" (dict "root" .root "image" .root.Values.image.broker) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [headrace]
args: {{- toYaml .step.args | nindent 2 }}
env:
  - {name: HEADRACE_API, value: {{ .api | quote }}}
  - name: HEADRACE_API_USER
    valueFrom: {secretKeyRef: {name: {{ default $secret $given }}, key: username}}
  - name: HEADRACE_API_PASSWORD
    valueFrom: {secretKeyRef: {name: {{ default $secret $given }}, key: password}}
  {{- if .files }}
  - {name: HEADRACE_API_CA_FILE, value: /tls/ca.crt}
  - {name: HEADRACE_API_CERT_FILE, value: /tls/tls.crt}
  - {name: HEADRACE_API_KEY_FILE, value: /tls/tls.key}
volumeMounts:
  - {name: tls, mountPath: /tls, readOnly: true}
  {{- end }}
securityContext: {{- include "headrace.containerSecurity" .root | nindent 2 }}
{{- end }}
