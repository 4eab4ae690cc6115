{{- define "exeunt.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "exeunt.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "exeunt.labels" -}}
{{ include "exeunt.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* True if the server uses PostgreSQL. */}}
{{- define "exeunt.postgres" -}}
{{- if or .Values.database.url .Values.database.existingSecret }}true{{ end }}
{{- end }}

{{/* Refuses values with which the server would lose data or not start. */}}
{{- define "exeunt.check" -}}
{{- $_ := required "image.repository is required: where you pushed the image of the release" .Values.image.repository }}
{{- if and (gt (int .Values.replicas) 1) (not (include "exeunt.postgres" .)) }}{{ fail "replicas: more than one needs PostgreSQL: set database.url or database.existingSecret" }}{{ end }}
{{- if and (include "exeunt.postgres" .) (not .Values.keys.existingSecret) }}{{ fail "keys.existingSecret is required with a database: exeunt keys create DIR makes its content" }}{{ end }}
{{- if and (include "exeunt.postgres" .) .Values.registry.enabled (not (hasPrefix "s3://" .Values.registry.storage)) }}{{ fail "registry.storage must be s3://… with a database: the volume of a pod is empty after each restart; or set registry.enabled to false" }}{{ end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.tokenSecret) }}{{ fail "serviceMonitor.tokenSecret is required: /metrics needs a client that may read it" }}{{ end }}
{{- end }}
