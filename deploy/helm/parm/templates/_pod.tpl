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
  httpGet:
    path: /v2/health/live
    port: http
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /v2/health/live
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /v2/health/ready
    port: http
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: ["ALL"]
{{- end }}
