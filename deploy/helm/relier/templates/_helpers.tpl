{{- define "relier.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "relier.labels" -}}
app.kubernetes.io/name: relier
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "relier.env" -}}
envFrom:
  - secretRef:
      name: {{ .Values.secret }}
env:
  - name: RELIER_GRACEFUL_SHUTDOWN_TIMEOUT
    value: {{ .Values.shutdownTimeout | quote }}
{{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "relier.probe" -}}
exec:
  command: ["sh", "-c", "rl nodes --host \"$(hostname)\" --json | grep -q '\"health\": \"alive\"'"]
initialDelaySeconds: 5
periodSeconds: 15
timeoutSeconds: 10
failureThreshold: 4
{{- end }}
