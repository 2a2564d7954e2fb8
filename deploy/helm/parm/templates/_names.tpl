{{- define "parm.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What selects the pods of a component: a list of the chart's scope and "frontend" or "worker". */}}
{{- define "parm.selector" -}}
app.kubernetes.io/name: parm
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "parm.labels" -}}
{{ include "parm.selector" . }}
app.kubernetes.io/part-of: parm
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "parm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Settings as flags: each wins over the file. Helm has all numbers as floats, and would write large ones as 1.34e+08. */}}
{{- define "parm.settings" -}}
{{- range $path, $value := . }}
- --set
{{- if kindIs "slice" $value }}
- {{ printf "%s=%s" $path (toJson $value) | quote }}
{{- else if and (kindIs "float64" $value) (eq $value (floor $value)) }}
- {{ printf "%s=%d" $path (int64 $value) | quote }}
{{- else }}
- {{ printf "%s=%v" $path $value | quote }}
{{- end }}
{{- end }}
{{- end }}
