package machineclass

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// differing counts the Machines of a class whose instances were created with other data than the class contains
// now. The data is either the user data or the account.
type differing struct {
	// machines is the number of Machines whose instance was created with known data. others is the number of Machines
	// whose data differs from the current data of the class. deployments are the deployments that own these differing
	// Machines.
	machines, others int
	deployments      []string
}

// count counts a Machine that is not being deleted. The parameter with is the data with which the Machine's
// instance was created. It is empty if this data is unknown. The parameter now is the current data of the class.
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

// restartCommands returns a text with the commands that replace the differing Machines. The text is empty if no such
// Machine belongs to a deployment.
func (d *differing) restartCommands(namespace string) string {
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

// account contains what is known about the cloud account that the credentials of a class belong to.
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

// changed returns a message if instances of the class were created in another account, and "" otherwise.
func (a *account) changed(class *v1beta1.MachineClass) string {
	if a.others == 0 || class.Spec.CredentialsRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were created in another account than %q, which the credentials in Secret %s open now. "+
		"While their instances are not found there, these machines are neither replaced nor deleted. Restore the former "+
		"credentials, and create another class with the new ones.", a.others, a.machines, a.name,
		class.Spec.CredentialsRef.Name)
}
