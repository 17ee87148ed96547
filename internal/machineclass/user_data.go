package machineclass

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/bootstrap"
	"machinist.dev/machinist/internal/machineclass/resolve"
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
	// machines is how many Machines of the class have an instance of known user data, differing how many of these have
	// another than the class has now, and deployments whose they are.
	machines, differing int
	deployments         []string
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
	if in := m.Status.Instance; in != nil && in.UserDataHash != "" && m.DeletionTimestamp.IsZero() {
		u.machines++
		if in.UserDataHash != u.hash {
			u.differing++
			if d := m.Labels[v1beta1.LabelMachineDeployment]; d != "" && !slices.Contains(u.deployments, d) {
				u.deployments = append(u.deployments, d)
			}
		}
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
	put := func(kind, reason, message string) {
		if message == "" {
			if meta.FindStatusCondition(*conditions, kind) != nil {
				meta.RemoveStatusCondition(conditions, kind)
			}
			return
		}
		meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason,
			Message: bounded(message), ObservedGeneration: class.Generation, LastTransitionTime: metav1.NewTime(now)})
	}
	reason, message := u.warning()
	put(v1beta1.ConditionUserDataWarning, reason, message)
	put(v1beta1.ConditionUserDataChanged, v1beta1.ReasonMachinesDiffer, u.changed(class))
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

// mostSuspicious is how many placeholders a message names, and mostDeployments how many deployments.
const (
	mostSuspicious  = 5
	mostDeployments = 3
)

// changed says that machines were created from other user data; empty if none was.
func (u *userData) changed(class *v1beta1.MachineClass) string {
	if u.differing == 0 || class.Spec.UserDataRef == nil {
		return ""
	}
	message := fmt.Sprintf("%d of %d machines were created from other user data than Secret %s has now, and stay as they are.",
		u.differing, u.machines, class.Spec.UserDataRef.Name)
	slices.Sort(u.deployments)
	var commands []string
	for _, d := range u.deployments[:min(len(u.deployments), mostDeployments)] {
		commands = append(commands, fmt.Sprintf("machinist rollout restart md/%s -n %s", d, class.Namespace))
	}
	if len(commands) > 0 {
		message += " To replace them, run: " + strings.Join(commands, "; ")
	}
	if more := len(u.deployments) - mostDeployments; more > 0 {
		message += fmt.Sprintf("; and so for %d more", more)
	}
	return message
}

// userDataFacts returns what a Machine says about the user data of its class.
func userDataFacts(o client.Object) string {
	m, ok := o.(*v1beta1.Machine)
	if !ok || m.Status.Instance == nil {
		return ""
	}
	return fmt.Sprint(m.Status.Instance.UserDataHash, deviationsOf(m), m.DeletionTimestamp.IsZero())
}

// concernsUserData reports whether a Machine may change what its class says about its user data.
func concernsUserData(class *v1beta1.MachineClass, o client.Object) bool {
	m, ok := o.(*v1beta1.Machine)
	if !ok {
		return false
	}
	return meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionUserDataWarning) != nil ||
		meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionUserDataChanged) != nil ||
		len(deviationsOf(m)) > 0 || m.Status.Instance != nil && m.Status.Instance.UserDataHash != class.Status.UserDataHash
}
