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

// observeAfter is the time for which changes of Machines are collected. After this time, the conditions that contain
// numbers of Machines are written.
const observeAfter = 10 * time.Second

// userData contains what the Reconciler knows about the user data of a class and about the Machines that were
// created with it.
type userData struct {
	hash string
	// suspicious are texts that look like misspelt placeholders. setsVersion is true if the user data contains the
	// placeholder of the version.
	suspicious  []string
	setsVersion bool
	differing
	// deviating contains the name of one Machine for each kind of deviation. It is the first Machine in alphabetical order
	// whose Node deviates in this way.
	deviating map[v1beta1.NodeDeviation]string
}

// userDataOf analyses a template.
func userDataOf(namespace string, template resolve.Template) *userData {
	return &userData{hash: resolve.UserDataHash(namespace, template), suspicious: bootstrap.Suspicious(template),
		setsVersion: bootstrap.Uses(template, bootstrap.KubeletVersion), deviating: map[v1beta1.NodeDeviation]string{}}
}

// count counts a Machine of the class.
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

// deviationsOf returns how the Node of a Machine deviates from the user data. The result is empty if the Machine is
// being deleted.
func deviationsOf(m *v1beta1.Machine) []v1beta1.NodeDeviation {
	if m.Status.NodeTemplate == nil || !m.DeletionTimestamp.IsZero() {
		return nil
	}
	return m.Status.NodeTemplate.Deviations
}

// report sets the conditions about the user data.
func (u *userData) report(class *v1beta1.MachineClass, conditions *[]metav1.Condition, now time.Time) {
	reason, message := u.warning()
	warn(class, conditions, now, v1beta1.ConditionUserDataWarning, reason, message)
	warn(class, conditions, now, v1beta1.ConditionUserDataChanged, v1beta1.ReasonMachinesDiffer, u.changed(class))
}

// warning returns a description of what is probably wrong with the user data. It is empty if there is no problem.
// The reason is the reason of the worst problem.
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
			"machine has taints, so pods that do not tolerate these taints may run on the Node. Add %s:NoSchedule to "+
			"registerWithTaints in the kubelet configuration of the user data.", m, v1beta1.NodeTaintUninitialized,
			v1beta1.NodeTaintUninitialized))
	}
	if m := u.deviating[v1beta1.NodeOtherVersion]; m != "" && u.setsVersion {
		add(v1beta1.ReasonNodeVersionDiffers, fmt.Sprintf("The kubelet of machine %s registered with another version than "+
			"spec.version. Correct how the user data uses <<%s>>.", m, bootstrap.KubeletVersion))
	}
	if m := u.deviating[v1beta1.NodeOtherName]; m != "" {
		add(v1beta1.ReasonNodeNameDiffers, fmt.Sprintf("The Node of machine %s registered under another name than its provider "+
			"expects. Do not set the host name in the user data, so that the cloud sets it.", m))
	}
	if n := len(u.suspicious); n > 0 {
		names := strings.Join(u.suspicious[:min(n, mostSuspicious)], ", ")
		if n > mostSuspicious {
			names += fmt.Sprintf(" and %d more", n-mostSuspicious)
		}
		add(v1beta1.ReasonUnknownPlaceholder, fmt.Sprintf("The user data contains %s, which is not a placeholder and is passed "+
			"to the machines unchanged. Placeholders are <<%s>>.", names, strings.Join(bootstrap.Placeholders(), ">>, <<")))
	}
	return reason, strings.Join(messages, " ")
}

// mostSuspicious is the maximum number of placeholders that a message names.
const mostSuspicious = 5

// changed returns a message if machines were created with user data that differs from the current user data, and ""
// otherwise.
func (u *userData) changed(class *v1beta1.MachineClass) string {
	if u.others == 0 || class.Spec.UserDataRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were created from other user data than Secret %s has now, and are not changed.",
		u.others, u.machines, class.Spec.UserDataRef.Name) + u.restartCommands(class.Namespace)
}

// countedOf returns the parts of a Machine's status on which the conditions of its class about user data and the
// account depend.
func countedOf(o client.Object) string {
	m, ok := o.(*v1beta1.Machine)
	if !ok || m.Status.Instance == nil {
		return ""
	}
	in := m.Status.Instance
	return fmt.Sprintf("%q %q", in.UserDataHash, in.Account) + fmt.Sprint(deviationsOf(m), m.DeletionTimestamp.IsZero())
}

// changesCount reports whether a change of a Machine may change the conditions of its class about user data and the
// account.
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
