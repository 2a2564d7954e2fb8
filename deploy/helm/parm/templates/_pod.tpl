{{/* What frontends' and workers' pods have in common: a list of the chart's scope and "frontend" or "worker". */}}
{{- define "parm.pod" -}}
{{- $root := index . 0 }}
{{- $component := index . 1 }}
{{- $values := index $root.Values $component }}
# The variables of a Service called `parm` (PARM_PORT, ...) are ignored by parm; nobody here needs them.
enableServiceLinks: false
{{- if $values.endpointSlices }}
serviceAccountName: {{ include "parm.name" $root }}-frontend
automountServiceAccountToken: true
{{- else }}
automountServiceAccountToken: false
{{- end }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # So that a Secret of keys or certificates need not be readable for everyone.
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "parm.selector" (list $root $component) | nindent 8 }}
{{- end }}
{{- end }}

{{/* Ports, probes and rights of the container. */}}
{{- define "parm.container" -}}
ports:
  - name: http
    containerPort: 8000
  - name: grpc
    containerPort: 8001
  - name: metrics
    containerPort: 8002
startupProbe:
  {{- include "parm.probe" (list . "live") | nindent 2 }}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  {{- include "parm.probe" (list . "live") | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- include "parm.probe" (list . "ready") | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}

{{/* What the kubelet asks: a list of the chart's scope and "live" or "ready". It has no certificate, so under mutual TLS it only connects. */}}
{{- define "parm.probe" -}}
{{- $tls := (index . 0).Values.tls -}}
{{- if and (eq $tls.mode "require") $tls.clients -}}
tcpSocket:
  port: http
{{- else -}}
httpGet:
  path: /v2/health/{{ index . 1 }}
  port: http
  {{- if eq $tls.mode "require" }}
  scheme: HTTPS
  {{- end }}
{{- end }}
{{- end }}

{{/* Settings of TLS, as flags. */}}
{{- define "parm.tls.args" -}}
{{- if ne .Values.tls.mode "off" }}
- --set
- tls.mode={{ .Values.tls.mode }}
- --set
- tls.certificate=/etc/parm-tls/tls.crt
- --set
- tls.key=/etc/parm-tls/tls.key
- --set
- tls.ca=/etc/parm-tls/ca.crt
- --set
- {{ printf "tls.worker_names=%s" (toJson (.Values.tls.workerNames | default (list (include "parm.tls.name" .)))) | quote }}
{{- with .Values.tls.clients }}
- --set
- tls.client_ca=/etc/parm-tls/ca.crt
- --set
- {{ printf "tls.names=%s" (toJson .) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "parm.tls.name" -}}
{{ include "parm.name" . }}-workers.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "parm.tls.mount" -}}
{{- if ne .Values.tls.mode "off" }}
- name: tls
  mountPath: /etc/parm-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "parm.tls.volume" -}}
{{- if ne .Values.tls.mode "off" }}
- name: tls
  secret:
    secretName: {{ .Values.tls.secret }}
    defaultMode: 0440
{{- end }}
{{- end }}
