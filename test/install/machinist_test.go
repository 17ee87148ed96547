//go:build e2e && linux

package install

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/realnode"
)

const system = "machinist-system"

const (
	coreRelease     = "machinist"
	providerRelease = "machinist-provider-sim"
	cloudRelease    = "simcloud"
)

const (
	cloudToken = "the-token-of-your-account"
	adminToken = "the-operators-token"
)

// onRealNode returns a Helm flag that selects the real node for the pods. Simulated nodes cannot run containers.
func onRealNode() string {
	return `--set=nodeSelector.kubernetes\.io/hostname=` + realnode.KubeadmNodeName
}

type machinist struct {
	t       *testing.T
	cluster *realnode.KubeadmCluster
	api     client.WithWatch
	cloud   *simcloud.Admin
}

func newMachinist(t *testing.T) *machinist {
	t.Helper()
	c := cluster(t)
	m := &machinist{t: t, cluster: c, api: clientOf(t, c)}
	t.Cleanup(func() {
		if t.Failed() {
			m.explain()
		}
	})
	restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system,
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := m.api.Create(t.Context(), restricted); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	// Wait until the pods of the previous test have terminated, because the Services of this test would select them.
	env.Await(t, m.api, &corev1.PodList{}, "no pods of the previous test",
		func(list *corev1.PodList) (bool, string) {
			return len(list.Items) == 0, fmt.Sprintf("%d pods", len(list.Items))
		}, client.InNamespace(system))
	return m
}

func (m *machinist) installCloud(h *helm) {
	m.t.Helper()
	h.run(m.t, "install", cloudRelease, chart("simcloud"), "--namespace="+system, "--create-namespace", "--wait",
		"--set=token="+cloudToken, "--set=adminToken="+adminToken)
	service := &corev1.Service{}
	if err := m.api.Get(m.t.Context(), client.ObjectKey{Namespace: system, Name: cloudRelease}, service); err != nil {
		m.t.Fatal(err)
	}
	var err error
	m.cloud, err = simcloud.NewAdmin(simcloud.Config{
		Endpoint:   fmt.Sprintf("http://%s:%d", service.Spec.ClusterIP, service.Spec.Ports[0].Port),
		Token:      adminToken,
		HTTPClient: &http.Client{Timeout: 10 * time.Second},
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

func coreValues() []string {
	// Use a user ID that does not exist in the image, like OpenShift, which assigns user IDs to each namespace.
	const user = "--set=podSecurityContext.runAsUser=1000650000,podSecurityContext.fsGroup=1000650000"
	return []string{"--namespace=" + system, "--create-namespace", onRealNode(), user}
}

func providerValues() []string {
	return []string{"--namespace=" + system, "--create-namespace", onRealNode(), "--set=provider.name=sim",
		"--set=provider.flags.cloud-endpoint=http://" + cloudRelease + ":8080"}
}

func (m *machinist) install(h *helm, flags ...string) {
	m.t.Helper()
	h.run(m.t, slices.Concat([]string{"install", coreRelease, chart("machinist")}, coreValues(), flags)...)
	h.run(m.t, slices.Concat([]string{"install", providerRelease, chart("machinist-provider")}, providerValues(),
		flags)...)
}

func (m *machinist) fleet(namespace string) {
	m.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, o := range objects {
		o.SetNamespace(namespace)
		// The webhooks may refuse objects until the new pods are ready.
		m.eventually(fmt.Sprintf("%T %s is accepted", o, o.GetName()), func() (bool, string) {
			err := m.api.Create(m.t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict))
			return err == nil, fmt.Sprint(err)
		})
	}
}

func (m *machinist) scale(namespace string, n int32) {
	m.t.Helper()
	d := &v1beta1.MachineDeployment{}
	if err := m.api.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: examples.Deployment}, d); err != nil {
		m.t.Fatal(err)
	}
	before := d.DeepCopy()
	d.Spec.Replicas = &n
	if err := m.api.Patch(m.t.Context(), d, client.MergeFrom(before)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machinist) awaitReady(namespace string, n int) []v1beta1.Machine {
	m.t.Helper()
	env.Await(m.t, m.api, &v1beta1.MachineDeploymentList{}, fmt.Sprintf("%d ready machines", n),
		func(list *v1beta1.MachineDeploymentList) (bool, string) {
			for _, d := range list.Items {
				if d.Name == examples.Deployment && int(d.Status.ReadyReplicas) == n && int(d.Status.Replicas) == n &&
					int(d.Status.UpdatedReplicas) == n {
					return true, ""
				}
			}
			return false, m.describe(namespace)
		}, client.InNamespace(namespace))
	machines := m.machines(namespace)
	for i := range machines {
		node := &corev1.Node{}
		ref := machines[i].Status.NodeRef
		if ref == nil {
			m.t.Errorf("machine %s counts as ready but has no Node", machines[i].Name)
			continue
		}
		if err := m.api.Get(m.t.Context(), client.ObjectKey{Name: ref.Name}, node); err != nil {
			m.t.Errorf("get the Node of machine %s: %v", machines[i].Name, err)
			continue
		}
		if !nodeReady(node) {
			m.t.Errorf("Node %s is not Ready: %+v", node.Name, node.Status.Conditions)
		}
	}
	return machines
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (m *machinist) machines(namespace string) []v1beta1.Machine {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.api.List(m.t.Context(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

func (m *machinist) instances() (live []string, created int) {
	m.t.Helper()
	dump, err := m.cloud.Dump(m.t.Context())
	if err != nil {
		m.t.Fatalf("list the instances of the cloud: %v", err)
	}
	for _, r := range dump.Records {
		if r.State != simcloud.StateTerminated && r.State != simcloud.StateShuttingDown {
			live = append(live, r.ID)
		}
	}
	slices.Sort(live)
	return live, dump.InstancesCreated
}

func (m *machinist) wantUntouched(what string, live []string, created int) {
	m.t.Helper()
	now, nowCreated := m.instances()
	if !slices.Equal(live, now) || created != nowCreated {
		m.t.Fatalf("%s: got instances %v, %d created, want %v, %d created", what, now, nowCreated, live, created)
	}
	progress(m.t, "%s: %d instances untouched, %d ever created", what, len(now), nowCreated)
}

func (m *machinist) pods(namespace, program string) []corev1.Pod {
	m.t.Helper()
	list := &corev1.PodList{}
	// explain calls this function after the end of the test, so do not use the canceled context of the test.
	if err := m.api.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return program != "" && !strings.HasPrefix(p.Name, program+"-")
	})
}

// eventually repeats a check until ask returns true. Use eventually only for states that cannot be watched.
func (m *machinist) eventually(what string, ask func() (bool, string)) {
	m.t.Helper()
	deadline := time.After(env.Patience)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var state string
	for {
		ok := false
		if ok, state = ask(); ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			m.t.Fatalf("waited %s until %s; last seen: %s", env.Patience, what, state)
		}
	}
}
