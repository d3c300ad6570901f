{{/* What everything is called after. */}}
{{- define "headrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "headrace.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "headrace.operatorName" -}}
{{- printf "%s-operator" (include "headrace.fullname" .) }}
{{- end }}

{{- define "headrace.serviceAccountName" -}}
{{- if .Values.operator.serviceAccount.create }}
{{- default (include "headrace.operatorName" .) .Values.operator.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.operator.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "headrace.clusterName" -}}
{{- default (.Release.Name | trunc 40 | trimSuffix "-") .Values.cluster.name }}
{{- end }}

{{/* Labels by which the operator's pod is found; a NetworkPolicy of each cluster knows the first. */}}
{{- define "headrace.selectorLabels" -}}
app.kubernetes.io/name: headrace-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headrace.labels" -}}
{{ include "headrace.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: headrace
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image: (dict "root" $ "image" .Values.image.broker). */}}
{{- define "headrace.image" -}}
{{- $repository := .image.repository }}
{{- if .root.Values.image.registry }}
{{- $repository = printf "%s/%s" .root.Values.image.registry $repository }}
{{- end }}
{{- if .image.digest }}
{{- printf "%s@%s" $repository .image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{/* What no pod of the release may do. */}}
{{- define "headrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
