{{- define "anyvisor.labels" -}}
app.kubernetes.io/part-of: anyvisor
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "anyvisor.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "anyvisor.image" -}}
{{ .Values.image.registry }}/anyvisor:{{ include "anyvisor.tag" . }}
{{- end }}

{{- define "anyvisor.podDefaults" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.priorityClass.name }}
priorityClassName: {{ .Values.priorityClass.name }}
{{- end }}
{{- end }}

{{- define "anyvisor.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /*
What our own components change is not asked about again, and neither is the end of objects that others own: a machine must
be told of, stopped and deleted while no gateway answers. Agents are held to their node by a policy of the API server.
*/ -}}
{{- define "anyvisor.notOurOwn" -}}
- name: not-our-own-changes
  expression: >-
    !(request.operation == 'UPDATE' && request.userInfo.username in [
    'system:serviceaccount:{{ .Release.Namespace }}:anyvisor-controller',
    'system:serviceaccount:{{ .Release.Namespace }}:anyvisor-agent',
    'system:serviceaccount:kube-system:generic-garbage-collector'])
{{- end }}

{{- /* Who may read metrics at a port; nobody where the list is empty. */ -}}
{{- define "anyvisor.scrapers" -}}
{{- $root := index . 0 -}}
{{- if and $root.Values.monitoring.enabled $root.Values.monitoring.from }}
- from:
    {{- toYaml $root.Values.monitoring.from | nindent 4 }}
  ports: [{port: {{ index . 1 }}}]
{{- end }}
{{- end }}
