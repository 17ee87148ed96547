package machineclass

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// observeAfter is for how long the changes of Machines are gathered before the conditions that count them are written.
const observeAfter = 10 * time.Second

// userData is what is known of a class's user data.
type userData struct {
	hash string
	// suspicious is what looks like a misspelt placeholder. setsVersion is true if the placeholder of the version is in
	// it.
	suspicious  []string
	setsVersion bool
	differing
	// deviating is the first Machine, by name, whose Node deviates in each way.
	deviating map[v1beta1.NodeDeviation]string
}

// userDataOf reads a template.
func userDataOf(namespace string, template resolve.Template) *userData {
	return &userData{hash: resolve.UserDataHash(namespace, template), suspicious: bootstrap.Suspicious(template),
		setsVersion: bootstrap.Uses(template, bootstrap.KubeletVersion), deviating: map[v1beta1.NodeDeviation]string{}}
}

// count takes note of a Machine of the class.
func (u *userData) count(m *v1beta1.Machine) {
	if in := m.Status.Instance; in != nil {
		u.differing.count(m, in.UserDataHash, u.hash)
	}
	for _, deviation := range deviationsOf(m) {
		if first := u.deviating[deviation]; first == "" || m.Name < first {
			u.deviating[deviation] = m.Name
		}
	}
}

// deviationsOf returns how the Node of a Machine deviates that was created from the user data.
func deviationsOf(m *v1beta1.Machine) []v1beta1.NodeDeviation {
	if m.Status.NodeTemplate == nil || !m.DeletionTimestamp.IsZero() {
		return nil
	}
	return m.Status.NodeTemplate.Deviations
}

// report sets the conditions that follow.
func (u *userData) report(class *v1beta1.MachineClass, conditions *[]metav1.Condition, now time.Time) {
	reason, message := u.warning()
	warn(class, conditions, now, v1beta1.ConditionUserDataWarning, reason, message)
	warn(class, conditions, now, v1beta1.ConditionUserDataChanged, v1beta1.ReasonMachinesDiffer, u.changed(class))
}

// warning says what is probably wrong with the user data; empty if nothing. The reason is that of the worst.
func (u *userData) warning() (reason, message string) {
	var messages []string
	add := func(why, text string) {
		if reason == "" {
			reason = why
		}
		messages = append(messages, text)
	}
	if m := u.deviating[v1beta1.NodeNoUninitializedTaint]; m != "" {
		add(v1beta1.ReasonNodeNotTainted, fmt.Sprintf("The Node of machine %s registered without the taint %s although the "+
			"machine has taints, so pods that do not tolerate these may run on it. Add %s:NoSchedule to registerWithTaints of "+
			"the kubelet's configuration in the user data.", m, v1beta1.NodeTaintUninitialized, v1beta1.NodeTaintUninitialized))
	}
	if m := u.deviating[v1beta1.NodeOtherVersion]; m != "" && u.setsVersion {
		add(v1beta1.ReasonNodeVersionDiffers, fmt.Sprintf("The kubelet of machine %s registered with another version than "+
			"spec.version. Correct how the user data uses <<%s>>.", m, bootstrap.KubeletVersion))
	}
	if m := u.deviating[v1beta1.NodeOtherName]; m != "" {
		add(v1beta1.ReasonNodeNameDiffers, fmt.Sprintf("The Node of machine %s registered under another name than its provider "+
			"expects. Leave the host name to the cloud in the user data.", m))
	}
	if n := len(u.suspicious); n > 0 {
		named := strings.Join(u.suspicious[:min(n, mostSuspicious)], ", ")
		if n > mostSuspicious {
			named += fmt.Sprintf(" and %d more", n-mostSuspicious)
		}
		add(v1beta1.ReasonUnknownPlaceholder, fmt.Sprintf("The user data contains %s, which is not a placeholder and reaches "+
			"the machines as it is. Placeholders are <<%s>>.", named, strings.Join(bootstrap.Placeholders(), ">>, <<")))
	}
	return reason, strings.Join(messages, " ")
}

// mostSuspicious is how many placeholders a message names.
const mostSuspicious = 5

// changed says that machines were created from other user data; empty if none was.
func (u *userData) changed(class *v1beta1.MachineClass) string {
	if u.others == 0 || class.Spec.UserDataRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were created from other user data than Secret %s has now, and stay as they are.",
		u.others, u.machines, class.Spec.UserDataRef.Name) + u.restart(class.Namespace)
}

// countedOf returns what a Machine says about the user data and the account of its class.
func countedOf(o client.Object) string {
	m, ok := o.(*v1beta1.Machine)
	if !ok || m.Status.Instance == nil {
		return ""
	}
	in := m.Status.Instance
	return fmt.Sprintf("%q %q", in.UserDataHash, in.Account) + fmt.Sprint(deviationsOf(m), m.DeletionTimestamp.IsZero())
}

// changesCount reports whether a Machine may change what its class says about its user data or its account.
func changesCount(class *v1beta1.MachineClass, o client.Object) bool {
	m, ok := o.(*v1beta1.Machine)
	if !ok {
		return false
	}
	for _, kind := range []string{v1beta1.ConditionUserDataWarning, v1beta1.ConditionUserDataChanged,
		v1beta1.ConditionAccountChanged} {
		if meta.FindStatusCondition(class.Status.Conditions, kind) != nil {
			return true
		}
	}
	in := m.Status.Instance
	return len(deviationsOf(m)) > 0 || in != nil &&
		(in.UserDataHash != class.Status.UserDataHash || in.Account != class.Status.Account)
}
