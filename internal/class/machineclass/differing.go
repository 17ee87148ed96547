package machineclass

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// differing counts the Machines of a class whose instance was created with other data than the class has now.
type differing struct {
	// machines is how many Machines have an instance for which the data is known. others is how many of these differ.
	// deployments are the deployments of those that differ.
	machines, others int
	deployments      []string
}

// count counts a Machine that is not being deleted. with is the data with which its instance was created, or empty if
// it is unknown. now is the current data of the class.
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

// mostDeployments is the maximum number of deployments that a message names.
const mostDeployments = 3

// restart returns the commands that replace the Machines. It is empty if none of them belongs to a deployment.
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
		message += fmt.Sprintf("; and the same for %d more deployments", more)
	}
	return message
}

// account is what is known about the account that the credentials of a class open.
type account struct {
	name string
	differing
}

// count counts a Machine of the class.
func (a *account) count(m *v1beta1.Machine) {
	if in := m.Status.Instance; in != nil {
		a.differing.count(m, in.Account, a.name)
	}
}

// changed returns a message if machines are in another account, and "" otherwise.
func (a *account) changed(class *v1beta1.MachineClass) string {
	if a.others == 0 || class.Spec.CredentialsRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were created in another account than %q, which the credentials in Secret %s open now. "+
		"While their instances are not found there, these machines are neither replaced nor deleted. Restore the former "+
		"credentials, and create another class with the new ones.", a.others, a.machines, a.name,
		class.Spec.CredentialsRef.Name)
}
