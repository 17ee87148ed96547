//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/hack/openstack"
	"machinist.dev/machinist/test/fleet"
)

// startFull returns a running fleet. startFull skips the test unless FULL is set.
func startFull(t *testing.T, o ...string) *openStack {
	t.Helper()
	if !fullRun() {
		t.Skip("FULL=1 runs it")
	}
	out := start(t, stack.Options{ProviderArgs: o})
	out.Apply()
	out.WaitRunning(examples.SmallClass)
	return out
}

func minutes(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Minute}
}

// awaitReason waits until a condition of a machine is not True, and its reason or message contains the words.
func (o *openStack) awaitReason(what, condition string, words ...string) {
	o.Helper()
	o.Await(what, func(all []v1beta1.Machine) bool {
		for i := range all {
			is := meta.FindStatusCondition(all[i].Status.Conditions, condition)
			if is == nil || is.Status == metav1.ConditionTrue {
				continue
			}
			found := true
			for _, word := range words {
				found = found && strings.Contains(is.Reason+" "+is.Message, word)
			}
			if found {
				return true
			}
		}
		return false
	})
}

func (o *openStack) serverCount() int {
	o.Helper()
	all, err := serversOf(o.Context(), o.member)
	if err != nil {
		o.Fatal(err)
	}
	return len(all)
}

// The fleet waits while the quota is exhausted.
func TestFleetGrowsWhenQuotaIsRaised(t *testing.T) {
	o := startFull(t)
	project := o.cloud.SeedObjects().ProjectID
	limit := func(n int) {
		t.Helper()
		if _, err := quotasets.Update(context.WithoutCancel(t.Context()), o.admin.Compute, project,
			quotasets.UpdateOpts{Instances: &n}).Extract(); err != nil {
			t.Fatal(err)
		}
	}
	limit(fleet.Machines)
	t.Cleanup(func() { limit(-1) })
	o.Scale(fleet.Machines + 1)
	o.awaitReason("a machine that waits for the quota", v1beta1.ConditionLaunched, "ResourceExhausted")
	if n := o.serverCount(); n != fleet.Machines {
		t.Errorf("the project has %d servers, want %d", n, fleet.Machines)
	}
	limit(-1)
	o.RunningAre(fleet.Machines+1, examples.SmallClass)
	o.Delete()
	o.WaitGone()
}

// Nova accepts a flavor for which no host has room, and the server fails later. Existing machines stay. When the class
// is changed back, the fleet recovers.
func TestFleetSurvivesFlavorThatFitsNoHost(t *testing.T) {
	o := startFull(t)
	before := o.WaitRunning(examples.SmallClass)
	o.Create(o.Class(examples.SmallClass, "impossible", func(spec map[string]any) { spec["flavor"] = "impossible" }))
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "impossible" })
	o.Await("a machine for which no host has room", func(all []v1beta1.Machine) bool {
		for i := range all {
			for _, c := range all[i].Status.Conditions {
				if strings.Contains(c.Message, "No valid host was found") {
					return true
				}
			}
		}
		return false
	})
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = examples.SmallClass })
	after := o.WaitRunning(examples.SmallClass)
	if same := fleet.Common(before, after); len(same) != fleet.Machines {
		t.Errorf("only the machines %v were kept, want %d", same, fleet.Machines)
	}
	o.Delete()
	o.WaitGone()
}

// An image is deleted while volumes are created from it. The conditions of the machines must name the image. The
// machines recover when the fleet uses another class.
func TestMachinesWaitForDeletedImage(t *testing.T) {
	o := startFull(t)
	hidden := images.ImageVisibilityPrivate
	image, err := images.Create(t.Context(), o.member.Image, images.CreateOpts{Name: "short-lived", DiskFormat: "raw",
		ContainerFormat: "bare", Visibility: &hidden}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	err = imagedata.Upload(t.Context(), o.member.Image, image.ID, strings.NewReader("an image")).ExtractErr()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cloud.Kill(openstack.CinderVolume); err != nil {
		t.Fatal(err)
	}
	o.Create(o.Class(examples.LargeClass, "short-lived", func(spec map[string]any) {
		spec["image"] = map[string]any{"name": "short-lived"}
		spec["rootVolume"], spec["volumes"] = map[string]any{"sizeGiB": 1}, nil
		delete(spec, "volumes")
	}))
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "short-lived" })
	if err := o.member.await(t.Context(), "a volume is being created", func() (bool, error) {
		found, err := o.member.Resources(t.Context())
		for _, r := range found {
			if strings.HasPrefix(r, "volume/") {
				return true, nil
			}
		}
		return false, err
	}); err != nil {
		t.Fatal(err)
	}
	if err := images.Delete(t.Context(), o.member.Image, image.ID).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if err := o.cloud.StartService(t.Context(), openstack.CinderVolume); err != nil {
		t.Fatal(err)
	}
	o.Patience = 8 * time.Minute
	o.awaitReason("a machine that waits for the image", v1beta1.ConditionLaunched, "short-lived")
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = examples.SmallClass })
	o.WaitRunning(examples.SmallClass)
	o.Delete()
	o.WaitGone()
}

// A server in ERROR with a running guest is kept. A server that an administrator deletes is replaced.
func TestOnlyDeletedServerIsReplaced(t *testing.T) {
	o := startFull(t)
	before := o.WaitRunning(examples.SmallClass)
	erroneous := idOf(before[0].Spec.ProviderID)
	if err := servers.ResetState(t.Context(), o.admin.Compute, erroneous, servers.StateError).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if err := servers.Delete(t.Context(), o.admin.Compute, idOf(before[1].Spec.ProviderID)).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	o.Await("a replacement of the deleted server", func(all []v1beta1.Machine) bool {
		running := 0
		for i := range all {
			if all[i].Status.Phase == v1beta1.MachineRunning && all[i].UID != before[1].UID {
				running++
			}
		}
		return len(all) == fleet.Machines && running == fleet.Machines
	})
	after := o.WaitRunning(examples.SmallClass)
	if same := fleet.Common(before, after); len(same) != fleet.Machines-1 {
		t.Errorf("only the machines %v were kept, want %d", same, fleet.Machines-1)
	}
	o.Delete()
	o.WaitGone()
}

// A provider that is repeatedly killed while it creates servers leaves no parts behind, even if the Machine object no
// longer exists.
func TestPartsOfKilledProviderAreDeleted(t *testing.T) {
	o := startFull(t, "--orphan-check-period=5s", "--orphan-min-age=5s")
	seeded := o.cloud.SeedObjects()
	if _, err := ports.Create(t.Context(), o.member.Network, ports.CreateOpts{NetworkID: seeded.Networks["nodes"].ID,
		Name: "dead-abcdefgh-port-0", Description: "machinist cluster=" + o.clusterID() +
			" uid=11111111-2222-4333-8444-555555555555 machine=default/dead"}).Extract(); err != nil {
		t.Fatal(err)
	}
	o.Create(o.Class(examples.LargeClass, "kills", func(spec map[string]any) {
		spec["rootVolume"], spec["volumes"] = map[string]any{"sizeGiB": 1}, []any{map[string]any{"name": "data", "sizeGiB": 1}}
	}))
	o.Change(func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.ClassRef.Name = "kills" })
	kills := 0
	for range 3 {
		before, err := o.member.Resources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := o.member.await(t.Context(), "another part is created", func() (bool, error) {
			now, err := o.member.Resources(t.Context())
			return len(now) > len(before), err
		}); err != nil {
			t.Log(err)
			break // No further part was created, so all parts of the machines exist.
		}
		kills++
		if err := o.Provider.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := o.Provider.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if kills == 0 {
		t.Error("the provider was never killed, so the test proves nothing")
	}
	all := o.WaitRunning("kills")
	if err := o.member.await(t.Context(), "only the parts of the machines are left", func() (bool, error) {
		now, err := o.member.Resources(t.Context())
		return len(now) == len(all)*4, err
	}); err != nil {
		t.Error(err)
	}
	o.Delete()
	o.WaitGone()
}

func (o *openStack) clusterID() string {
	o.Helper()
	all, err := serversOf(o.Context(), o.member)
	if err != nil || len(all) == 0 {
		o.Fatal("the project has no server: ", err)
	}
	return all[0].Metadata["machinist-cluster"]
}

// The provider requests another token after Keystone revoked the old one. Machines report an invalid application
// credential. The Machines work again when the Secret contains a valid credential.
func TestFleetRecoversFromRevokedTokensAndCredentials(t *testing.T) {
	o := startFull(t)
	if err := o.cloud.RevokeTokens(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Scale(fleet.Machines + 1)
	o.RunningAre(fleet.Machines+1, examples.SmallClass)

	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: fleet.Namespace, Name: examples.OpenStack.Credentials()}
	if err := o.Control.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	good := secret.DeepCopy()
	secret.Data["applicationCredentialSecret"] = []byte("not-the-secret")
	if err := o.Control.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	o.Scale(fleet.Machines + 2)
	o.awaitReason("a machine that waits for valid credentials", v1beta1.ConditionLaunched, "Unauthenticated")
	good.ResourceVersion = ""
	if err := o.Control.Update(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	o.RunningAre(fleet.Machines+2, examples.SmallClass)
	o.Delete()
	o.WaitGone()
}
