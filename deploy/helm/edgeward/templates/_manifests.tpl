{{/*
The chart has no manifests of its own: files/ are links to those that kustomize puts together, and a template says what
values change of them.
*/}}

{{/* The text of a file, with this release's domain and namespace. Arguments: the root, the file. */}}
{{- define "edgeward.file" -}}
{{- $root := index . 0 -}}
{{- $file := index . 1 -}}
{{- $text := $root.Files.Get (printf "files/%s" $file) -}}
{{- if not $text -}}
{{- fail (printf "files/%s is not there: this copy of the chart lost its symbolic links; make one with `helm package` in a checkout" $file) -}}
{{- end -}}
{{- $text | replace "example.io" $root.Values.domain | replace "edgeward-system" $root.Release.Namespace -}}
{{- end }}

{{/* The objects of a file, with the labels of the release. Arguments: the root, the file. */}}
{{- define "edgeward.objects" -}}
{{- $root := index . 0 -}}
{{- $text := include "edgeward.file" . -}}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- with fromYaml . }}
{{- include "edgeward.labelled" (list $root .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* As edgeward.objects; where rights.namespaces has any, roles are bound in these alone. Arguments: the root, the file. */}}
{{- define "edgeward.narrowed" -}}
{{- $root := index . 0 -}}
{{- range splitList "\n---\n" (include "edgeward.objects" .) }}
{{- with fromYaml . }}
{{- $object := . }}
{{- if and $root.Values.rights.namespaces (eq .kind "ClusterRoleBinding") }}
{{- range $root.Values.rights.namespaces }}
{{- $metadata := merge (dict "namespace" .) $object.metadata }}
---
{{ toYaml (merge (dict "kind" "RoleBinding" "metadata" $metadata) $object) }}
{{- end }}
{{- else }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* An object as a document, with the labels of the release but for those that it has. Arguments: the root, the object. */}}
{{- define "edgeward.labelled" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $labels := dict
  "app.kubernetes.io/name" "edgeward"
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_")) -}}
{{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) $labels) }}
---
{{ toYaml $object }}
{{- end }}

{{/* The configuration: what is stated, for the program has the defaults. Argument: the root. */}}
{{- define "edgeward.config" -}}
{{- toYaml (merge (dict "domain" .Values.domain) .Values.config) -}}
{{- end }}

{{/* Name of the ConfigMap that has it, which its content is part of, as with kustomize. Argument: the root. */}}
{{- define "edgeward.config-map" -}}
edgeward-config-{{ include "edgeward.config" . | sha256sum | trunc 10 }}
{{- end }}

{{/* The Deployment. Argument: the root. */}}
{{- define "edgeward.deployment" -}}
{{- $values := .Values -}}
{{- $text := include "edgeward.objects" (list . "base/deployment.yaml") -}}
{{- $deployment := $text | replace "edgeward-config" (include "edgeward.config-map" .) | fromYaml -}}
{{- $_ := set $deployment.spec "replicas" (ternary 1 $values.replicas $values.oneNode) -}}
{{- if or $values.oneNode $values.hostNetwork -}}
{{- /* As deploy/one-node and deploy/host-network. */ -}}
{{- $_ := set $deployment.spec.strategy "rollingUpdate" (dict "maxUnavailable" 1 "maxSurge" 0) -}}
{{- end -}}
{{- $template := $deployment.spec.template -}}
{{- if hasKey $values.podLabels "app.kubernetes.io/name" -}}
{{- fail "podLabels: app.kubernetes.io/name is what the Service selects by" -}}
{{- end -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $values.podLabels) -}}
{{- with $values.podAnnotations }}{{ $_ := set $template.metadata "annotations" . }}{{ end -}}
{{- $_ := set $template.spec "securityContext" $values.podSecurityContext -}}
{{- if $values.hostNetwork -}}
{{- $_ := set $template.spec "hostNetwork" true -}}
{{- $_ := set $template.spec "dnsPolicy" "ClusterFirstWithHostNet" -}}
{{- $sysctls := list -}}
{{- range $values.podSecurityContext.sysctls }}{{ if not (hasPrefix "net." .name) }}{{ $sysctls = append $sysctls . }}{{ end }}{{ end -}}
{{- $context := omit $values.podSecurityContext "sysctls" -}}
{{- with $sysctls }}{{ $_ := set $context "sysctls" . }}{{ end -}}
{{- $_ := set $template.spec "securityContext" $context -}}
{{- end -}}
{{- $_ := unset $template.spec "priorityClassName" -}}
{{- with $values.priorityClassName }}{{ $_ := set $template.spec "priorityClassName" . }}{{ end -}}
{{- with $values.image.pullSecrets }}{{ $_ := set $template.spec "imagePullSecrets" . }}{{ end -}}
{{- $_ := unset $template.spec "topologySpreadConstraints" -}}
{{- range list "topologySpreadConstraints" "nodeSelector" "tolerations" "affinity" -}}
{{- $field := . -}}
{{- with index $values $field }}{{ $_ := set $template.spec $field . }}{{ end -}}
{{- end -}}
{{- $container := first $template.spec.containers -}}
{{- $repository := required "image.repository: name your image (docs/guide/install.md tells how to build it)" $values.image.repository -}}
{{- $_ := set $container "image" (printf "%s:%s" $repository ($values.image.tag | default .Chart.AppVersion)) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- $_ := set $container "securityContext" $values.securityContext -}}
{{- if eq $values.certificates.source "self-managed" -}}
{{- /* As deploy/overlays/self-managed. */ -}}
{{- $args := without $container.args "--tls-cert=/etc/edgeward/tls/tls.crt" "--tls-key=/etc/edgeward/tls/tls.key" -}}
{{- $_ := set $container "args" (append $args "--self-managed") -}}
{{- $_ := unset $container "volumeMounts" -}}
{{- $_ := unset $template.spec "volumes" -}}
{{- end -}}
{{- range $i, $option := list "--listen" "--health-listen" -}}
{{- $port := index $container.ports $i -}}
{{- $number := int (index (list $values.ports.admission $values.ports.health) $i) -}}
{{- if ne $number (int $port.containerPort) -}}
{{- $_ := set $port "containerPort" $number -}}
{{- $_ := set $container "args" (append $container.args (printf "%s=0.0.0.0:%d" $option $number)) -}}
{{- end -}}
{{- end -}}
{{- if $values.peers.enabled -}}
{{- /* As deploy/peers. */ -}}
{{- $address := dict "name" "POD_IP" "valueFrom" (dict "fieldRef" (dict "apiVersion" "v1" "fieldPath" "status.podIP")) -}}
{{- $_ := set $container "env" (prepend $container.env $address) -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "peers" "containerPort" 8444)) -}}
{{- $mount := dict "name" "peers" "mountPath" "/etc/edgeward/peers" "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (prepend ($container.volumeMounts | default list) $mount) -}}
{{- $volume := dict "name" "peers" "secret" (dict "secretName" "edgeward-peers" "defaultMode" 288 "optional" true) -}}
{{- $_ := set $template.spec "volumes" (prepend ($template.spec.volumes | default list) $volume) -}}
{{- end -}}
{{- if $values.karmada.enabled -}}
{{- /* As deploy/karmada. */ -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "estimator" "containerPort" 10352)) -}}
{{- range $name := list "karmada" "estimator" -}}
{{- $mount := dict "name" $name "mountPath" (printf "/etc/edgeward/%s" $name) "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (prepend ($container.volumeMounts | default list) $mount) -}}
{{- $volume := dict "name" $name "secret" (dict "secretName" (printf "edgeward-%s" $name) "defaultMode" 288 "optional" true) -}}
{{- $_ := set $template.spec "volumes" (prepend ($template.spec.volumes | default list) $volume) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- $_ := set $container "env" (concat $container.env $values.extraEnv) -}}
{{- with $values.extraVolumes }}{{ $_ := set $template.spec "volumes" (concat ($template.spec.volumes | default list) .) }}{{ end -}}
{{- with $values.extraVolumeMounts }}{{ $_ := set $container "volumeMounts" (concat ($container.volumeMounts | default list) .) }}{{ end -}}
{{- toYaml $deployment }}
{{- end }}

{{/*
A Job that runs edgeward once, as a hook, with rights of its own that go with it. Arguments: the root, its name, the hook,
the file of its rights, its arguments.
*/}}
{{- define "edgeward.hook" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $hook := index . 2 -}}
{{- $rules := $root.Files.Get (index . 3) | replace "edgeward-config" (include "edgeward.config-map" $root) | fromYaml -}}
{{- $args := index . 4 -}}
{{- $group := "rbac.authorization.k8s.io" -}}
{{- $subjects := list (dict "kind" "ServiceAccount" "name" $name "namespace" $root.Release.Namespace) -}}
{{- $account := dict "apiVersion" "v1" "kind" "ServiceAccount" "automountServiceAccountToken" false -}}
{{- $deployed := (include "edgeward.deployment" $root | fromYaml).spec.template.spec -}}
{{- $container := pick (first $deployed.containers) "name" "image" "imagePullPolicy" "resources" "securityContext" -}}
{{- $_ := set $container "args" $args -}}
{{- $pod := pick $deployed "automountServiceAccountToken" "priorityClassName" "imagePullSecrets" "nodeSelector" "tolerations" "affinity" -}}
{{- $_ := set $pod "securityContext" $root.Values.podSecurityContext -}}
{{- $_ := set $pod "containers" (list $container) -}}
{{- $_ := set $pod "serviceAccountName" $name -}}
{{- $_ := set $pod "restartPolicy" "Never" -}}
{{- /* Not the label that the Service selects by. */ -}}
{{- $labelled := dict "labels" (merge (dict "app.kubernetes.io/name" $name) $root.Values.podLabels) -}}
{{- with $root.Values.podAnnotations }}{{ $_ := set $labelled "annotations" . }}{{ end -}}
{{- $template := dict "metadata" $labelled "spec" $pod -}}
{{- $job := dict "backoffLimit" 2 "activeDeadlineSeconds" 240 "template" $template -}}
{{- $objects := list $account -}}
{{- range $scope, $kind := dict "everywhere" "ClusterRole" "home" "Role" -}}
{{- with index $rules $scope -}}
{{- $role := dict "apiVersion" (printf "%s/v1" $group) "kind" $kind "rules" . -}}
{{- $ref := dict "apiGroup" $group "kind" $kind "name" $name -}}
{{- $binding := dict "apiVersion" (printf "%s/v1" $group) "kind" (printf "%sBinding" $kind) "roleRef" $ref "subjects" $subjects -}}
{{- $objects = concat $objects (list $role $binding) -}}
{{- end -}}
{{- end -}}
{{- $objects = append $objects (dict "apiVersion" "batch/v1" "kind" "Job" "spec" $job) -}}
{{- range $weight, $object := $objects }}
{{- $annotations := dict
  "helm.sh/hook" $hook
  "helm.sh/hook-weight" (toString $weight)
  "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $metadata := dict "name" $name "annotations" $annotations -}}
{{- if not (hasPrefix "Cluster" $object.kind) }}{{ $_ := set $metadata "namespace" $root.Release.Namespace }}{{ end -}}
{{- include "edgeward.labelled" (list $root (set $object "metadata" $metadata)) }}
{{- end }}
{{- end }}
