package machineclass

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// withUserData returns a bench whose class has this user data.
func withUserData(t *testing.T, template string) *bench {
	t.Helper()
	class := testClass()
	class.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "boot"}
	boot := testSecret()
	boot.Name, boot.Labels = "boot", map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseUserData}
	boot.Data = map[string][]byte{"userData": []byte(template)}
	return newBench(t, &scripted{name: "sim"}, class, testSecret(), boot)
}

func (b *bench) setUserData(template string) {
	b.Helper()
	boot := testSecret()
	boot.Name, boot.Labels = "boot", map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseUserData}
	boot.Data = map[string][]byte{"userData": []byte(template)}
	b.update(boot)
}

// Rule: unknown-placeholder-is-a-warning.
func TestAMisspeltPlaceholderIsAWarningOfTheClass(t *testing.T) {
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
		t.Error("the warning stayed after the correction")
	}
}

// A message may be as long as what it complains of, and must not make the status unwritable.
func TestAnAbsurdTemplateMakesAShortWarning(t *testing.T) {
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
func TestUserDataThatCannotBeReadMakesTheClassNotReady(t *testing.T) {
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
		t.Error("not Ready after the correction")
	}
}
