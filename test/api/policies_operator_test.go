package api

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// asOperator installs the policy for the operator and returns a client with the operator's identity. The client has all
// permissions, so only the policy restricts it.
func asOperator(t *testing.T) client.Client {
	t.Helper()
	objects, err := manifests.Operator()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		switch object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding:
		default:
			continue
		}
		if err := install.Apply(t.Context(), env.Config(), object); err != nil {
			t.Fatal(err)
		}
	}
	operator := asProcess(t, installer.Name)
	await(t, "the policy for the operator", func() bool {
		return refusedBy("operator", dryRun(t, operator, objectNamed("v1", "ServiceAccount", "foreign")))
	})
	return operator
}

func objectNamed(apiVersion, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetNamespace(manifests.Namespace)
	object.SetName(name)
	return object
}

func ofProvider(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	parsed := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &parsed); err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.RenderProvider(manifests.Release{Name: "machinist-provider-sim",
		Namespace: manifests.Namespace, Values: parsed, ManagedBy: installer.Name})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// The policy must allow the operator to write all objects that the chart machinist-provider can render.
//
// Rule: operator-limited-by-policy.
func TestOperatorInstallsAllFormsOfTheChart(t *testing.T) {
	operator := asOperator(t)
	for _, values := range []string{
		"provider: {name: sim}",
		`{provider: {name: a-shard-b}, shards: 2, replicas: 2, networkPolicy: {enabled: true},
		secretNamespaces: [default, kube-system]}`,
		"{provider: {name: sim}, secretNamespaces: ['*'], userDataConfigMaps: [default], target: {none: true}}",
		`{provider: {name: sim}, watchNamespace: default, clusterID: a, webhook: {certSecret: certificate},
		metrics: {certSecret: metrics}}`,
		"{provider: {name: sim}, control: {kubeconfigSecret: {name: a}}, target: {kubeconfigSecret: {name: b}}}",
		"{provider: {name: sim}, extraVolumes: [{name: a, configMap: {name: a}}], extraVolumeMounts: [{name: a, mountPath: /a}]}",
	} {
		for _, object := range ofProvider(t, values) {
			labels := object.GetLabels()
			// The operator sets this label on the objects that it installs.
			labels["machinist.dev/installed-by"] = "sim"
			object.SetLabels(labels)
			err := operator.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object),
				client.FieldOwner(installer.Name), client.ForceOwnership, client.DryRunAll)
			if err != nil {
				t.Errorf("the operator cannot apply %s %s with the values %s: %v", object.GetKind(), object.GetName(),
					values, err)
			}
		}
	}
}

// An attacker with the identity of the operator tries two kinds of requests: changing an object of a provider process,
// and writing an object that does not belong to a provider process. The policy must refuse both kinds.
//
// Rule: operator-limited-by-policy.
func TestOperatorWritesOnlyObjectsOfProviders(t *testing.T) {
	const sim = "machinist-provider-sim"
	operator := asOperator(t)
	objects := map[string]*unstructured.Unstructured{}
	for _, object := range ofProvider(t, "provider: {name: sim}") {
		if key := object.GetKind(); objects[key] == nil {
			objects[key] = object
		}
	}
	refuse := func(what string, object *unstructured.Unstructured) {
		t.Helper()
		// If two policies reject an object, the API server names only one of the two policies.
		err := dryRun(t, operator, object)
		if !refusedBy("operator", err) && !refusedBy("processes-secrets", err) {
			t.Errorf("%s: got error %v, want a rejection by the policy", what, err)
		}
	}
	for _, kind := range []string{"Deployment", "ClusterRole", "ClusterRoleBinding", "Service", "ServiceAccount",
		"ValidatingWebhookConfiguration"} {
		if err := dryRun(t, operator, objects[kind]); err != nil {
			t.Fatalf("the operator cannot create the %s of the chart: %v", kind, err)
		}
	}

	type entry struct {
		kind    string
		changes []change
	}
	const pod = "spec/template/spec"
	volume := func(kind string, source map[string]any) entry {
		return entry{"Deployment", []change{{pod + "/volumes", []any{map[string]any{"name": "a", kind: source}}}}}
	}
	container := func(list, field string, value any) entry {
		containers, _, err := unstructured.NestedSlice(objects["Deployment"].Object, "spec", "template", "spec",
			"containers")
		if err != nil {
			t.Fatal(err)
		}
		one := containers[0].(map[string]any)
		one[field] = value
		if list != "containers" {
			one["name"] = "another"
			for _, forbidden := range []string{"livenessProbe", "readinessProbe", "lifecycle"} {
				delete(one, forbidden)
			}
		}
		return entry{"Deployment", []change{{pod + "/" + list, containers}}}
	}
	podField := func(field string, value any) entry { return entry{"Deployment", []change{{pod + "/" + field, value}}} }
	capability := map[string]any{"allowPrivilegeEscalation": false,
		"capabilities": map[string]any{"add": []string{"NET_RAW"}}}
	probe := func(kind, field string) entry {
		return container("containers", kind, map[string]any{field: map[string]any{"port": 80, "host": "169.254.169.254"}})
	}
	hook := func(kind string) entry {
		return container("containers", "lifecycle", map[string]any{kind: map[string]any{
			"httpGet": map[string]any{"port": 80, "host": "127.0.0.1"}}})
	}
	secured := func(field string, value any) entry {
		return container("containers", "securityContext", map[string]any{"allowPrivilegeEscalation": false, field: value})
	}
	device := container("containers", "volumeDevices", []any{map[string]any{"name": "a", "devicePath": "/dev/a"}})
	device.changes = append(device.changes,
		volume("persistentVolumeClaim", map[string]any{"claimName": "a"}).changes...)
	unconfined := map[string]any{"type": "Unconfined"}
	rule := func(group, resource string, verbs ...string) []change {
		return []change{{"rules", []any{map[string]any{"apiGroups": []string{group}, "resources": []string{resource},
			"verbs": verbs}}}}
	}
	subject := func(fields map[string]any) []change { return []change{{"subjects", []any{fields}}} }
	account := func(namespace, name string) []change {
		return subject(map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": name})
	}
	user := func(kind, name string) []change {
		return subject(map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
	}
	role := func(name string) []change { return []change{{"roleRef/name", name}} }
	rename := func(name string) []change { return []change{{"metadata/name", name}} }
	const other, context = "registry.example.com/shell", "securityContext"
	for what, e := range map[string]entry{
		"a Deployment with another name":        {"Deployment", rename("machinist-manager")},
		"a Deployment in another namespace":     {"Deployment", []change{{"metadata/namespace", "default"}}},
		"a Deployment of another account":       podField("serviceAccountName", "machinist-manager"),
		"a Deployment of another provider":      podField("serviceAccountName", sim+"-2"),
		"a Deployment without an account":       podField("serviceAccountName", nil),
		"the network of the host":               podField("hostNetwork", true),
		"the processes of the host":             podField("hostPID", true),
		"the IPC of the host":                   podField("hostIPC", true),
		"a path of the host":                    volume("hostPath", map[string]any{"path": "/"}),
		"a volume with another image":           volume("image", map[string]any{"reference": other}),
		"a network volume":                      volume("nfs", map[string]any{"server": "a", "path": "/"}),
		"another image":                         container("containers", "image", other),
		"another image of an init container":    container("initContainers", "image", other),
		"no security context":                   container("containers", context, map[string]any{}),
		"no security context of an initializer": container("initContainers", context, map[string]any{}),
		"a capability":                          container("containers", context, capability),
		"a privileged container": container("containers", context,
			map[string]any{"privileged": true, "allowPrivilegeEscalation": true}),
		"a port of the host": container("containers", "ports",
			[]any{map[string]any{"containerPort": 1, "hostPort": 1}}),
		"an inline CSI volume":              volume("csi", map[string]any{"driver": "hostpath.csi.example.com"}),
		"a host in a probe":                 probe("livenessProbe", "httpGet"),
		"a host in a probe of readiness":    probe("readinessProbe", "tcpSocket"),
		"a host in a probe of the start":    probe("startupProbe", "httpGet"),
		"a host in a handler of the start":  hook("postStart"),
		"a host in a handler of the end":    hook("preStop"),
		"a block device":                    device,
		"a type of SELinux":                 secured("seLinuxOptions", map[string]any{"type": "spc_t"}),
		"a type of SELinux for the pod":     podField("securityContext/seLinuxOptions", map[string]any{"type": "spc_t"}),
		"no profile of seccomp":             secured("seccompProfile", unconfined),
		"no profile of seccomp for the pod": podField("securityContext/seccompProfile", unconfined),
		"no profile of AppArmor":            secured("appArmorProfile", unconfined),
		"no profile of AppArmor, by annotation": {"Deployment", []change{{"spec/template/metadata/annotations",
			map[string]any{"container.apparmor.security.beta.kubernetes.io/" + sim: "unconfined"}}}},
		"a sysctl": podField("securityContext/sysctls",
			[]any{map[string]any{"name": "kernel.msgmax", "value": "1"}}),
		"a Node":                   podField("nodeName", "control-plane"),
		"the highest priority":     podField("priorityClassName", "system-node-critical"),
		"a role with another name": {"ClusterRole", rename("mine")},
		"a role that may write roles": {"ClusterRole",
			rule("rbac.authorization.k8s.io", "clusterrolebindings", "create")},
		"a role that may do everything":          {"ClusterRole", rule("*", "*", "*")},
		"a role that may write Deployments":      {"ClusterRole", rule("apps", "deployments", "create")},
		"a role that may write service accounts": {"ClusterRole", rule("", "serviceaccounts", "create")},
		"a role that may create tokens":          {"ClusterRole", rule("", "serviceaccounts/token", "create")},
		"a role that may write Providers":        {"ClusterRole", rule("machinist.dev", "providers", "patch")},
		"a role that may write Services":         {"ClusterRole", rule("", "services", "create")},
		"a role that may read all Services":      {"ClusterRole", rule("", "services", "get")},
		"a role that may read all URLs": {"ClusterRole", []change{{"rules", []any{map[string]any{
			"nonResourceURLs": []string{"*"}, "verbs": []string{"get"}}}}}},
		"a role that becomes a part of view": {"ClusterRole", []change{
			{"metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view", "true"}}},
		"a binding with another name":      {"ClusterRoleBinding", rename("mine")},
		"a binding of the operator's role": {"ClusterRoleBinding", role("machinist-operator-control")},
		"a binding of the manager's role":  {"ClusterRoleBinding", role("machinist-manager-control")},
		"a binding of cluster-admin":       {"ClusterRoleBinding", role("cluster-admin")},
		"a binding to a user":              {"ClusterRoleBinding", user("User", "mallory")},
		"a binding to all users":           {"ClusterRoleBinding", user("Group", "system:authenticated")},
		"a binding to the operator":        {"ClusterRoleBinding", account(manifests.Namespace, "machinist-operator")},
		"a binding to the manager":         {"ClusterRoleBinding", account(manifests.Namespace, "machinist-manager")},
		"a binding to a migrator": {"ClusterRoleBinding",
			account(manifests.Namespace, "machinist-migrator-sim")},
		"a binding to an account elsewhere":      {"ClusterRoleBinding", account("default", sim)},
		"a binding to a name with a dot":         {"ClusterRoleBinding", account(manifests.Namespace, sim+".x")},
		"a Service for an external IP":           {"Service", []change{{"spec/externalIPs", []string{"192.0.2.1"}}}},
		"a Service with a load balancer":         {"Service", []change{{"spec/type", "LoadBalancer"}}},
		"a service account with another name":    {"ServiceAccount", rename("machinist-manager")},
		"a service account of a migrator":        {"ServiceAccount", rename("machinist-migrator-sim")},
		"a service account with a dot":           {"ServiceAccount", rename(sim + ".x")},
		"a service account in another namespace": {"ServiceAccount", []change{{"metadata/namespace", "default"}}},
		"a webhook with another name":            {"ValidatingWebhookConfiguration", rename("machinist-manager")},
	} {
		refuse(what, apply(t, objects[e.kind].DeepCopy(), e.changes...))
	}

	generated := objects["ServiceAccount"].DeepCopy()
	generated.SetName("")
	generated.SetGenerateName("machinist-migrator-")
	refuse("a generated name", generated)
	refuse("a Secret", objectNamed("v1", "Secret", sim))
	refuse("a ConfigMap", objectNamed("v1", "ConfigMap", "machinist-cluster-id"))
	refuse("the Lease of a process", objectNamed("coordination.k8s.io/v1", "Lease", "machinist-manager"))
	refuse("the Lease of another operator", objectNamed("coordination.k8s.io/v1", "Lease", "machinist-operator-2"))
	refuse("a Machine", parse(t, manifests.Namespace, machine))
	if err := dryRun(t, operator, objectNamed("coordination.k8s.io/v1", "Lease", installer.Name)); err != nil {
		t.Errorf("the operator cannot create its Lease: %v", err)
	}
}
