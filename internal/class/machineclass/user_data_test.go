package machineclass

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

func withUserData(t *testing.T, template string, machines ...*v1beta1.Machine) *bench {
	t.Helper()
	class := testClass()
	class.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "boot"}
	boot := testSecret()
	boot.Name, boot.Labels = "boot", map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseUserData}
	boot.Data = map[string][]byte{"userData": []byte(template)}
	objects := []client.Object{class, testSecret(), boot}
	for _, m := range machines {
		class.Finalizers = []string{v1beta1.InUseFinalizer}
		objects = append(objects, m)
	}
	return newBench(t, &scripted{name: "sim"}, objects...)
}

func (b *bench) setUserData(template string) {
	b.Helper()
	boot := testSecret()
	boot.Name, boot.Labels = "boot", map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseUserData}
	boot.Data = map[string][]byte{"userData": []byte(template)}
	b.update(boot)
}

// Rule: unknown-placeholder-is-a-warning.
func TestMisspeltPlaceholderIsAWarningOfTheClass(t *testing.T) {
	b := withUserData(t, "cat <<EOF>>/etc/hosts <<MACHINE_NAM>> <<NODE_POOL>>")
	b.reconcile()
	b.reconcile()
	conditions := b.class().Status.Conditions
	warning := meta.FindStatusCondition(conditions, v1beta1.ConditionUserDataWarning)
	if warning == nil || warning.Reason != v1beta1.ReasonUnknownPlaceholder ||
		!strings.Contains(warning.Message, "<<MACHINE_NAM>>, <<NODE_POOL>>,") || strings.Contains(warning.Message, "EOF") {
		t.Errorf("the warning is %+v", warning)
	}
	if !meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReady) || b.eventCount() != 1 || b.writes != 1 {
		t.Errorf("%d events, %d writes, %+v", b.eventCount(), b.writes, conditions)
	}
	b.setUserData("cat <<EOF>>/etc/hosts <<MACHINE_NAME>>")
	b.reconcile()
	if meta.FindStatusCondition(b.class().Status.Conditions, v1beta1.ConditionUserDataWarning) != nil {
		t.Error("the warning is still set after the correction")
	}
}

// The warning repeats user data and must fit into a status.
func TestManyMisspeltPlaceholdersResultInAShortWarning(t *testing.T) {
	var template strings.Builder
	for i := range 5000 {
		template.WriteString("<<LONG_NAME_" + strings.Repeat("A", i%30) + "_" + string(rune('A'+i%26)) + ">>")
	}
	b := withUserData(t, template.String())
	b.reconcile()
	warning := meta.FindStatusCondition(b.class().Status.Conditions, v1beta1.ConditionUserDataWarning)
	if warning == nil || len(warning.Message) > 1100 || !strings.Contains(warning.Message, " more, ") {
		t.Errorf("the warning is %+v", warning)
	}
}

// Rule: unreadable-user-data-is-refused.
func TestUnreadableUserDataMakesTheClassNotReady(t *testing.T) {
	b := withUserData(t, "\xff\xfe<\x00<\x00")
	b.reconcile()
	ready := meta.FindStatusCondition(b.class().Status.Conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != v1beta1.ReasonInvalidUserData ||
		!strings.Contains(ready.Message, "UTF-16") {
		t.Errorf("Ready is %+v", ready)
	}
	b.setUserData("#cloud-config")
	b.reconcile()
	if !meta.IsStatusConditionTrue(b.class().Status.Conditions, v1beta1.ConditionReady) {
		t.Error("the class is not Ready after the correction")
	}
}

// Rule: values-of-the-class.
func TestPlaceholderWithoutAValueMakesTheClassNotReady(t *testing.T) {
	b := withUserData(t, "<<VALUES.proxy>>")
	b.reconcile()
	if ready := b.condition(v1beta1.ConditionReady); ready == nil || ready.Reason != v1beta1.ReasonInvalidUserData ||
		!strings.Contains(ready.Message, "<<VALUES.proxy>>") {
		t.Errorf("Ready is %+v", ready)
	}
}

// ofDeployment returns a Machine of the deployment web whose instance was created from the template.
func ofDeployment(name, template string) *v1beta1.Machine {
	m := withInstance(name)
	m.Labels = map[string]string{v1beta1.LabelMachineDeployment: "web"}
	m.Status.Instance = &v1beta1.InstanceStatus{Provider: "sim", UserDataHash: resolve.UserDataHash("ns", []byte(template))}
	return m
}

func (b *bench) condition(kind string) *metav1.Condition {
	b.Helper()
	return meta.FindStatusCondition(b.class().Status.Conditions, kind)
}

// Rule: changed-user-data-is-told.
func TestMachinesWithOtherUserDataAreCounted(t *testing.T) {
	b := withUserData(t, "first", ofDeployment("web-1", "first"), ofDeployment("web-2", "first"), withInstance("unknown"))
	b.reconcile()
	if c := b.condition(v1beta1.ConditionUserDataChanged); c != nil {
		t.Errorf("the condition is set although nothing has changed: %+v", c)
	}
	b.setUserData("second")
	b.reconcile()
	b.reconcile()
	c := b.condition(v1beta1.ConditionUserDataChanged)
	if c == nil || c.Reason != v1beta1.ReasonMachinesDiffer ||
		!strings.HasPrefix(c.Message, "2 of 2 machines were created from other user data than Secret boot has now") ||
		!strings.HasSuffix(c.Message, "machinist rollout restart md/web -n ns") {
		t.Errorf("the condition is %+v", c)
	}
	if b.eventCount() != 1 {
		t.Errorf("%d events", b.eventCount())
	}
	b.deleteMachine("web-1")
	b.reconcile()
	if c := b.condition(v1beta1.ConditionUserDataChanged); c == nil || !strings.HasPrefix(c.Message, "1 of 1 machines") {
		t.Errorf("the condition is %+v", c)
	}
	b.deleteMachine("web-2")
	b.reconcile()
	if c := b.condition(v1beta1.ConditionUserDataChanged); c != nil {
		t.Errorf("the condition is set although no machine differs any more: %+v", c)
	}
}

// The hash is public, so it must be too short to test guesses of a secret in the template.
//
// Rule: changed-user-data-is-told.
func TestHashOfUserDataIsShort(t *testing.T) {
	hash := resolve.UserDataHash("ns", []byte("password: hunter2"))
	if len(hash) != 8 || hash == resolve.UserDataHash("other", []byte("password: hunter2")) {
		t.Errorf("hash %q", hash)
	}
	if resolve.UserDataHash("ns", nil) != "" {
		t.Error("the hash of empty user data is not empty")
	}
}

// Rule: changed-account-is-told.
func TestMachinesInAnotherAccountAreCounted(t *testing.T) {
	in := func(name, account string) *v1beta1.Machine {
		m := ofDeployment(name, "first")
		m.Status.Instance.Account = account
		return m
	}
	b := withUserData(t, "first", in("web-1", "one"), in("web-2", "one"), in("unknown", ""))
	account := "one"
	b.Driver.(*scripted).account = func() string { return account }
	b.reconcile()
	if c := b.condition(v1beta1.ConditionAccountChanged); c != nil || b.class().Status.Account != "one" {
		t.Errorf("the condition is set although nothing has changed: %+v", c)
	}
	account = "two"
	b.reconcile()
	b.reconcile()
	c := b.condition(v1beta1.ConditionAccountChanged)
	if c == nil || c.Reason != v1beta1.ReasonMachinesDiffer || b.eventCount() != 1 ||
		!strings.HasPrefix(c.Message, `2 of 2 machines were created in another account than "two", to which`) {
		t.Errorf("%d events, the condition is %+v", b.eventCount(), c)
	}
	account = "one"
	b.reconcile()
	if c := b.condition(v1beta1.ConditionAccountChanged); c != nil {
		t.Errorf("the condition is set although the former credentials are back: %+v", c)
	}
}

// Rule: broken-promise-of-user-data-is-told.
func TestFirstDeviatingNodeIsAWarningOfTheClass(t *testing.T) {
	deviating := func(name string, deviations ...v1beta1.NodeDeviation) *v1beta1.Machine {
		m := withInstance(name)
		m.Status.NodeTemplate = &v1beta1.AppliedNodeTemplate{Deviations: deviations}
		return m
	}
	for name, test := range map[string]struct {
		template  string
		deviation v1beta1.NodeDeviation
		reason    string
		mention   string
	}{
		"no taint": {"x", v1beta1.NodeNoUninitializedTaint, v1beta1.ReasonNodeNotTainted, "machine m-1 registered without the taint machinist.dev/uninitialized"},
		"version":  {"<<KUBELET_VERSION>>", v1beta1.NodeOtherVersion, v1beta1.ReasonNodeVersionDiffers, "machine m-1 registered with another version"},
		"version that the user data does not set": {"x", v1beta1.NodeOtherVersion, "", ""},
		"name": {"x", v1beta1.NodeOtherName, v1beta1.ReasonNodeNameDiffers, "machine m-1 registered under another name"},
	} {
		b := withUserData(t, test.template, deviating("m-2", test.deviation), deviating("m-1", test.deviation))
		b.reconcile()
		b.reconcile()
		c := b.condition(v1beta1.ConditionUserDataWarning)
		if test.reason == "" {
			if c != nil {
				t.Errorf("%s: %+v", name, c)
			}
			continue
		}
		if c == nil || c.Reason != test.reason || !strings.Contains(c.Message, test.mention) || b.eventCount() != 1 {
			t.Errorf("%s: %d events, %+v", name, b.eventCount(), c)
		}
	}
}

// Rules: changed-user-data-is-told, broken-promise-of-user-data-is-told.
func TestChangesOfAMachineThatTriggerItsClass(t *testing.T) {
	before := ofDeployment("m", "first")
	for name, test := range map[string]struct {
		change   func(*v1beta1.Machine)
		triggers bool
	}{
		"a heartbeat":     {func(m *v1beta1.Machine) { m.Status.Version = "v1" }, false},
		"other user data": {func(m *v1beta1.Machine) { m.Status.Instance.UserDataHash = "x" }, true},
		"another account": {func(m *v1beta1.Machine) { m.Status.Instance.Account = "x" }, true},
		"its Node deviates": {func(m *v1beta1.Machine) {
			m.Status.NodeTemplate = &v1beta1.AppliedNodeTemplate{Deviations: []v1beta1.NodeDeviation{v1beta1.NodeOtherName}}
		}, true},
	} {
		after := before.DeepCopy()
		test.change(after)
		class := testClass()
		class.Status.UserDataHash = before.Status.Instance.UserDataHash
		if got := countedOf(before) != countedOf(after) && changesCount(class, after); got != test.triggers {
			t.Errorf("%s: triggers %t, want %t", name, got, test.triggers)
		}
	}
}
