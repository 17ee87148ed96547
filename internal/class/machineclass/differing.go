package machineclass

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// differing counts the Machines of a class whose instance was made with something else than the class has now.
type differing struct {
	// machines is how many Machines have an instance of which it is known, others how many of these differ, and
	// deployments whose they are.
	machines, others int
	deployments      []string
}

// count takes note of a Machine that stays: with what its instance was made, empty if that is not known, and what the
// class has now.
func (d *differing) count(m *v1beta1.Machine, with, now string) {
	if with == "" || now == "" || !m.DeletionTimestamp.IsZero() {
		return
	}
	d.machines++
	if with == now {
		return
	}
	d.others++
	if owner := m.Labels[v1beta1.LabelMachineDeployment]; owner != "" && !slices.Contains(d.deployments, owner) {
		d.deployments = append(d.deployments, owner)
	}
}

// mostDeployments is how many deployments a message names.
const mostDeployments = 3

// restart tells how to replace them; empty where no deployment does that.
func (d *differing) restart(namespace string) string {
	if len(d.deployments) == 0 {
		return ""
	}
	slices.Sort(d.deployments)
	var commands []string
	for _, name := range d.deployments[:min(len(d.deployments), mostDeployments)] {
		commands = append(commands, fmt.Sprintf("machinist rollout restart md/%s -n %s", name, namespace))
	}
	message := " To replace them, run: " + strings.Join(commands, "; ")
	if more := len(d.deployments) - mostDeployments; more > 0 {
		message += fmt.Sprintf("; and so for %d more", more)
	}
	return message
}

// account is what is known of the account that the credentials of a class open.
type account struct {
	name string
	differing
}

// count takes note of a Machine of the class.
func (a *account) count(m *v1beta1.Machine) {
	if in := m.Status.Instance; in != nil {
		a.differing.count(m, in.Account, a.name)
	}
}

// changed says that machines are in another account; empty if none is.
func (a *account) changed(class *v1beta1.MachineClass) string {
	if a.others == 0 || class.Spec.CredentialsRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were made in another account than %q, which the credentials in Secret %s name now. "+
		"While their instances are not found there, these machines are neither replaced nor deleted: put the former "+
		"credentials back, and give the new ones to a class of their own.", a.others, a.machines, a.name,
		class.Spec.CredentialsRef.Name)
}
