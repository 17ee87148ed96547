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

// observeAfter is the delay between a change of a Machine and the write of the class's conditions that count Machines.
// All changes within the delay need only one write.
const observeAfter = 10 * time.Second

type userData struct {
	hash string
	// The list suspicious contains texts that look like misspelled placeholders. setsVersion means that the user data
	// contains the placeholder of the version.
	suspicious  []string
	setsVersion bool
	differing
	// deviating holds an example for each kind of deviation of Nodes: the alphabetically first Machine with such a
	// Node.
	deviating map[v1beta1.NodeDeviation]string
}

func userDataOf(namespace string, template resolve.Template) *userData {
	return &userData{hash: resolve.UserDataHash(namespace, template), suspicious: bootstrap.Suspicious(template),
		setsVersion: bootstrap.HasPlaceholder(template, bootstrap.KubeletVersion),
		deviating:   map[v1beta1.NodeDeviation]string{}}
}

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

// deviationsOf returns how the Machine's Node deviates from the user data, or nothing during a deletion.
func deviationsOf(m *v1beta1.Machine) []v1beta1.NodeDeviation {
	if m.Status.NodeTemplate == nil || !m.DeletionTimestamp.IsZero() {
		return nil
	}
	return m.Status.NodeTemplate.Deviations
}

func (u *userData) report(class *v1beta1.MachineClass, conditions *[]metav1.Condition, now time.Time) {
	reason, message := u.warning()
	warn(class, conditions, now, v1beta1.ConditionUserDataWarning, reason, message)
	warn(class, conditions, now, v1beta1.ConditionUserDataChanged, v1beta1.ReasonMachinesDiffer, u.changed(class))
}

// warning returns the worst reason and a description of all probable mistakes in the user data, or "".
func (u *userData) warning() (reason, message string) {
	var messages []string
	add := func(why, text string) {
		if reason == "" {
			reason = why
		}
		messages = append(messages, text)
	}
	if m := u.deviating[v1beta1.NodeNoUninitializedTaint]; m != "" {
		add(v1beta1.ReasonNodeNotTainted, fmt.Sprintf("The Node of machine %s registered without the taint %s. "+
			"Pods that do not tolerate the machine's taints may run on this Node. "+
			"Add %s:NoSchedule to registerWithTaints in the kubelet configuration of the user data.", m,
			v1beta1.NodeTaintUninitialized, v1beta1.NodeTaintUninitialized))
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

const mostSuspicious = 5

func (u *userData) changed(class *v1beta1.MachineClass) string {
	if u.outdated == 0 || class.Spec.UserDataRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were created from other user data than Secret %s has now. "+
		"Existing machines do not change.", u.outdated, u.machines, class.Spec.UserDataRef.Name) +
		u.restartCommands(class.Namespace)
}

// countedOf returns the part of a Machine's status that affects the conditions of its class.
func countedOf(o client.Object) string {
	m, ok := o.(*v1beta1.Machine)
	if !ok || m.Status.Instance == nil {
		return ""
	}
	in := m.Status.Instance
	return fmt.Sprintf("%q %q", in.UserDataHash, in.Account) + fmt.Sprint(deviationsOf(m), m.DeletionTimestamp.IsZero())
}

// changesCount reports whether the controller must reconcile the class after a change of the given Machine.
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
