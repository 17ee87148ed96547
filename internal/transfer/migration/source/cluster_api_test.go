package source

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

// clusterAPIObject returns an object in the namespace clusters. spec is in YAML's flow style.
func clusterAPIObject(t *testing.T, version, kind, metadata, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	text := "{apiVersion: cluster.x-k8s.io/" + version + ", kind: " + kind + ", metadata: {name: a, namespace: clusters" +
		metadata + "}, spec: {" + spec + "}}"
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err, text)
	}
	data, err := object.MarshalJSON()
	if err == nil {
		err = object.UnmarshalJSON(data) // Numbers become int64, as in objects from the API server.
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func linkedClusterAPI() System { return clusterAPI{sources.LinkedObjects(provider.SourceClusterAPI)} }

// A release that serves only the older version of the API must not lose a field.
func TestVersionsOfClusterAPIConvertEqually(t *testing.T) {
	for _, test := range []struct {
		role         Role
		kind         string
		older, newer string
	}{
		{RoleHealthCheck, "MachineHealthCheck",
			`clusterName: one, selector: {matchLabels: {a: b}}, maxUnhealthy: 2, unhealthyRange: "[1-2]",
				nodeStartupTimeout: 5m, unhealthyConditions: [{type: Ready, status: Unknown, timeout: 3m}]`,
			`clusterName: one, selector: {matchLabels: {a: b}}, remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 2,
				unhealthyInRange: "[1-2]"}}, checks: {nodeStartupTimeoutSeconds: 300,
				unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 180}]}`},
		{RoleDeployment, "MachineDeployment",
			`clusterName: one, replicas: 3, minReadySeconds: 20, progressDeadlineSeconds: 600,
				strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 2, maxUnavailable: 1, deletePolicy: Oldest},
				remediation: {maxInFlight: 1}}, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}},
				spec: {clusterName: one, nodeDrainTimeout: 10m, nodeVolumeDetachTimeout: 5m, nodeDeletionTimeout: 10s,
				bootstrap: {configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate,
				name: one-md-0, namespace: clusters}}, infrastructureRef: {kind: SimMachineTemplate, name: one-md-0,
				apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, namespace: clusters}}}`,
			`clusterName: one, replicas: 3, deletion: {order: Oldest}, remediation: {maxInFlight: 1},
				rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 2, maxUnavailable: 1}}},
				selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {clusterName: one,
				minReadySeconds: 20, deletion: {nodeDrainTimeoutSeconds: 600, nodeVolumeDetachTimeoutSeconds: 300,
				nodeDeletionTimeoutSeconds: 10}, bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io,
				kind: KubeadmConfigTemplate, name: one-md-0}}, infrastructureRef: {kind: SimMachineTemplate,
				name: one-md-0, apiGroup: infrastructure.cluster.x-k8s.io}}}`},
		{RoleSet, "MachineSet",
			`clusterName: one, deletePolicy: Newest, minReadySeconds: 7, selector: {matchLabels: {a: b}}, template: {
				metadata: {labels: {a: b}}, spec: {clusterName: one, bootstrap: {dataSecretName: s},
				infrastructureRef: {kind: SimMachineTemplate, name: one-md-0, uid: x, resourceVersion: "1",
				apiVersion: infrastructure.cluster.x-k8s.io/v1beta1}}}`,
			`clusterName: one, deletion: {order: Newest}, selector: {matchLabels: {a: b}}, template: {
				metadata: {labels: {a: b}}, spec: {clusterName: one, minReadySeconds: 7, bootstrap: {dataSecretName: s},
				infrastructureRef: {kind: SimMachineTemplate, name: one-md-0,
				apiGroup: infrastructure.cluster.x-k8s.io}}}`},
	} {
		t.Run(test.kind, func(t *testing.T) {
			older := linkedClusterAPI().Convert(test.role, clusterAPIObject(t, "v1beta1", test.kind, "", test.older), nil)
			newer := linkedClusterAPI().Convert(test.role, clusterAPIObject(t, "v1beta2", test.kind, "", test.newer), nil)
			if older.HasBlocker() || older.Object == nil {
				t.Fatalf("the findings are %v", older.Findings)
			}
			isNote := func(f provider.Finding) bool { return f.Level == provider.FindingNote }
			older.Findings = slices.DeleteFunc(older.Findings, isNote)
			newer.Findings = slices.DeleteFunc(newer.Findings, isNote)
			if diff := cmp.Diff(older, newer); diff != "" {
				t.Error("-v1beta1 +v1beta2", diff)
			}
		})
	}
}

// The infrastructure provider writes the zone of an instance into its Machine. The class of the machine is still the
// class of its set.
func TestMachineOfSetHasClassOfSet(t *testing.T) {
	system := linkedClusterAPI()
	classes := map[string]*Class{}
	for _, old := range sources.Samples(provider.SourceClusterAPI)["healthy"] {
		classes[old.GetName()] = system.Convert(roleOf(t, system, old), old, nil).Class
	}
	set, machine := classes["one-md-0-x7k2p"], classes["one-md-0-x7k2p-4mzqd"]
	if set == nil || machine == nil || !set.SameInstances(machine) {
		t.Errorf("the class of the set is %+v, and the class of its machine is %+v", set, machine)
	}
}

// Cluster API's OpenStack provider deletes the instance with the OpenStackServer, which the OpenStackMachine owns.
func TestOpenStackServerIsPartOfMachine(t *testing.T) {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	machine := clusterAPIPart(t, infrastructure, "OpenStackMachine", "capi-machine", "capo-machine")
	machine.Object["spec"] = map[string]any{"flavor": "small", "providerID": "openstack:///1",
		"identityRef": map[string]any{"name": "cloud", "cloudName": "openstack"}}
	server := clusterAPIPart(t, infrastructure, "OpenStackServer", "capo-machine", "server")
	objects := append(sources.LinkedObjects(provider.SourceClusterAPI), machine, server)
	old := clusterAPIObject(t, "v1beta2", "Machine", ", uid: capi-machine", "clusterName: one, infrastructureRef: {apiGroup: "+
		infrastructure+", kind: OpenStackMachine, name: a}")
	c := clusterAPI{objects}.Convert(RoleMachine, old, nil)
	if c.HasBlocker() {
		t.Fatal(c.Findings)
	}
	kinds := []string{}
	for _, part := range c.Machine.Parts {
		kinds = append(kinds, fmt.Sprint(part.Kind, " ", part.OfPart))
	}
	if want := []string{"OpenStackMachine false", "OpenStackServer true"}; !slices.Equal(kinds, want) {
		t.Errorf("the parts are %v, want %v", kinds, want)
	}
	spec, _ := c.Class.Spec["machine"].(map[string]any)
	if spec["flavor"] != "small" || spec["providerID"] != nil || c.Class.Provider != "OpenStackMachine" {
		t.Errorf("the class is %+v", c.Class)
	}
	if want := []types.NamespacedName{{Namespace: "clusters", Name: "cloud"}}; !slices.Equal(c.Class.Credentials, want) {
		t.Errorf("the credentials are %v, want %v", c.Class.Credentials, want)
	}
}

// clusterAPIPart returns an object a with an owner.
func clusterAPIPart(t *testing.T, group, kind string, owner, uid types.UID) *unstructured.Unstructured {
	t.Helper()
	o := clusterAPIObject(t, "v1beta1", kind, "", "")
	o.SetAPIVersion(group + "/v1beta1")
	o.SetUID(uid)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "a", UID: owner}})
	return o
}

// The author of a machine must not make the migrator delete objects that do not belong to the machine.
func TestForeignObjectIsNotPartOfMachine(t *testing.T) {
	const owner, infrastructure = "capi-machine", clusterAPIInfrastructureGroup
	for name, c := range map[string]struct {
		group, kind, namespace string
		owner                  types.UID
		accepted               bool
	}{
		"own bootstrap config":          {clusterAPIBootstrapGroup, "KubeadmConfig", "clusters", owner, true},
		"own infrastructure object":     {infrastructure, "SimMachine", "clusters", owner, true},
		"config of another machine":     {clusterAPIBootstrapGroup, "KubeadmConfig", "clusters", "other", false},
		"config without an owner's UID": {clusterAPIBootstrapGroup, "KubeadmConfig", "clusters", "", false},
		"Cluster":                       {provider.SourceClusterAPI, "Cluster", "clusters", owner, false},
		"infrastructure cluster":        {infrastructure, "SimCluster", "clusters", owner, false},
		"template":                      {infrastructure, "SimMachineTemplate", "clusters", owner, false},
		"object of Machinist":           {"machinist.dev", "MachineDeployment", "clusters", owner, false},
		"object in another namespace":   {infrastructure, "SimMachine", "other", owner, false},
		"object without a namespace":    {infrastructure, "SimMachine", "", owner, false},
	} {
		part := clusterAPIPart(t, c.group, c.kind, c.owner, "part")
		part.SetNamespace(c.namespace)
		objects := sources.Linked{part}
		for _, object := range sources.LinkedObjects(provider.SourceClusterAPI) {
			if object.GetName() != "a" {
				objects = append(objects, object)
			}
		}
		old := clusterAPIObject(t, "v1beta2", "Machine", ", uid: "+owner, "clusterName: one, infrastructureRef: "+
			"{apiGroup: "+infrastructure+", kind: SimMachine, name: old-template}, bootstrap: {configRef: {apiGroup: "+
			c.group+", kind: "+c.kind+", name: a}}")
		converted := clusterAPI{objects}.Convert(RoleMachine, old, nil)
		added := slices.ContainsFunc(converted.Machine.Parts, func(p Part) bool { return p.Name == "a" })
		blocked := slices.Contains(codes(converted), "Blocker "+CodeNotPart+" spec.bootstrap.configRef")
		if added != c.accepted || blocked == c.accepted {
			t.Errorf("%s: part of the machine: %t, Blocker: %t, findings %v", name, added, blocked, codes(converted))
		}
	}
	old := clusterAPIObject(t, "v1beta2", "Machine", "", "clusterName: one, infrastructureRef: {apiGroup: "+
		infrastructure+", kind: SimMachine, name: a}")
	part := clusterAPIPart(t, infrastructure, "SimMachine", "", "part")
	c := clusterAPI{append(sources.LinkedObjects(provider.SourceClusterAPI), part)}.Convert(RoleMachine, old, nil)
	if len(c.Machine.Parts) > 0 {
		t.Errorf("a machine without a UID has the parts %v", c.Machine.Parts)
	}
}

// An identity names a Secret, which may be in another namespace.
func TestIdentityOfCluster(t *testing.T) {
	object := func(version, kind, spec string) *unstructured.Unstructured {
		o := clusterAPIObject(t, "v1beta1", kind, "", spec)
		o.SetAPIVersion(version)
		return o
	}
	const infrastructure = "infrastructure.cluster.x-k8s.io/v1beta1"
	objects := sources.Linked{
		object("cluster.x-k8s.io/v1beta2", "Cluster", "infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, "+
			"kind: AzureCluster, name: a}"),
		object(infrastructure, "AzureCluster", "location: westeurope, identityRef: {kind: AzureClusterIdentity, name: a}"),
		object(infrastructure, "AzureClusterIdentity", "type: ServicePrincipal, tenantID: t, clientID: c, clientSecret: "+
			"{name: s, namespace: secrets}"),
		object(infrastructure, "AzureMachineTemplate", "template: {spec: {vmSize: small}}"),
	}
	const spec = "clusterName: a, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
		"{clusterName: a, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AzureMachineTemplate, " +
		"name: a}}}"
	old := clusterAPIObject(t, "v1beta2", "MachineSet", "", spec)
	c := clusterAPI{objects}.Convert(RoleSet, old, nil)
	if c.HasBlocker() || c.Class == nil {
		t.Fatal(c.Findings)
	}
	if want := []types.NamespacedName{{Namespace: "secrets", Name: "s"}}; !slices.Equal(c.Class.Credentials, want) {
		t.Errorf("the credentials are %v, want %v", c.Class.Credentials, want)
	}
	if identity, _ := c.Class.Spec["identity"].(map[string]any); identity["tenantID"] != "t" {
		t.Errorf("the class is %+v", c.Class.Spec)
	}
	objects = append(objects, object("cluster.x-k8s.io/v1beta2", "Cluster", ""))
	objects[len(objects)-1].SetName("b")
	c = clusterAPI{objects}.Convert(RoleSet, old, nil)
	if got := codes(c); !slices.Contains(got, "Blocker "+CodeSeveralClusters+" spec.clusterName") {
		t.Errorf("with two Clusters, the findings are %v", got)
	}
}

// A lost taint, label or mark would change how pods are scheduled or drained.
func TestNodeMetadataOfClusterAPI(t *testing.T) {
	old := clusterAPIObject(t, "v1beta2", "Machine", `, labels: {"a.example.com/x": "1", "b.example.com/y": "2"}`,
		"clusterName: one, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: SimMachine, "+
			"name: old-template}")
	c := linkedClusterAPI().Convert(RoleMachine, old, Flags{clusterAPISyncedLabels: `^a\.example\.com/`})
	node := c.Object.(*v1beta1.Machine).Spec.Node
	if diff := cmp.Diff(map[string]string{"a.example.com/x": "1"}, node.Labels); diff != "" {
		t.Error("-want +got labels:", diff)
	}
	if c = linkedClusterAPI().Convert(RoleMachine, old, Flags{clusterAPISyncedLabels: "("}); !c.HasBlocker() {
		t.Error("an invalid flag has no Blocker")
	}
}

// A health check may select machines of the control plane by labels of the user.
func TestHealthChecksOfStayingMachines(t *testing.T) {
	machine := func(name, metadata, cluster string) *unstructured.Unstructured {
		o := clusterAPIObject(t, "v1beta2", "Machine", metadata, "clusterName: "+cluster)
		o.SetName(name)
		return o
	}
	owner := func(group, kind string) string {
		return "ownerReferences: [{apiVersion: " + group + "/v1beta2, kind: " + kind + ", name: o, uid: u, " +
			"controller: true}]"
	}
	const planes = clusterAPIControlPlaneGroup
	objects := append(sources.LinkedObjects(provider.SourceClusterAPI),
		machine("worker", `, labels: {tier: both, role: worker, site: a}`, "one"),
		machine("plane-1", `, labels: {tier: both, role: plane, cluster.x-k8s.io/control-plane: ""}`, "one"),
		machine("plane-2", `, labels: {owned: plane}, `+owner(planes, "KubeadmControlPlane"), "one"),
		machine("pooled", `, labels: {pooled: "yes"}, `+owner(provider.SourceClusterAPI, "MachinePool"), "one"),
		machine("elsewhere", `, labels: {role: worker, site: a, cluster.x-k8s.io/control-plane: ""}`, "two"))
	const stays, both = "Note ControlPlane metadata", "Loss ControlPlane spec.selector"
	for selector, c := range map[string]struct {
		finding string
		stays   bool
	}{
		"matchLabels: {role: plane}":   {stays, true},
		"matchLabels: {owned: plane}":  {stays, true},
		`matchLabels: {pooled: "yes"}`: {stays, true},
		"matchExpressions: [{key: role, operator: NotIn, values: [worker]}, {key: role, operator: Exists}]": {stays, true},
		"matchLabels: {tier: both}":   {both, false},
		"matchLabels: {role: worker}": {"", false},
		"matchLabels: {site: a}":      {"", false},
		"matchLabels: {role: none}":   {"", false},
	} {
		old := clusterAPIObject(t, "v1beta2", "MachineHealthCheck", "", "clusterName: one, selector: {"+selector+"}")
		converted := clusterAPI{objects}.Convert(RoleHealthCheck, old, nil)
		found := slices.DeleteFunc(codes(converted), func(text string) bool { return text != stays && text != both })
		if (converted.Object == nil) != c.stays || !slices.Equal(found, slices.DeleteFunc([]string{c.finding},
			func(text string) bool { return text == "" })) {
			t.Errorf("%s: stays %t with the findings %v, want %t with %q", selector, converted.Object == nil,
				codes(converted), c.stays, c.finding)
		}
	}
}
