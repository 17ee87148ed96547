package machineclass

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// differing counts the Machines whose instance does not have the class's current user data or account.
type differing struct {
	// machines counts the Machines for which the data of the instance is known.
	machines int
	// outdated counts the Machines whose instance has other data than the class. deployments own these Machines.
	outdated    int
	deployments []string
}

// count compares a value of a Machine's instance with the value of its class, and counts the Machine. An empty value is
// unknown. Machines with an unknown value and Machines that are being deleted are not counted.
func (d *differing) count(m *v1beta1.Machine, ofInstance, ofClass string) {
	if ofInstance == "" || ofClass == "" || !m.DeletionTimestamp.IsZero() {
		return
	}
	d.machines++
	if ofInstance == ofClass {
		return
	}
	d.outdated++
	if owner := m.Labels[v1beta1.LabelMachineDeployment]; owner != "" && !slices.Contains(d.deployments, owner) {
		d.deployments = append(d.deployments, owner)
	}
}

const mostDeployments = 3

// restartCommands returns the commands that replace the differing Machines, or "" if none belongs to a deployment.
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

type account struct {
	name string
	differing
}

func (a *account) count(m *v1beta1.Machine) {
	if in := m.Status.Instance; in != nil {
		a.differing.count(m, in.Account, a.name)
	}
}

func (a *account) changed(class *v1beta1.MachineClass) string {
	if a.outdated == 0 || class.Spec.CredentialsRef == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d machines were created in another account than %q, to which the credentials in "+
		"Secret %s belong now. These machines are neither replaced nor deleted while their instances are missing "+
		"there. Restore the former credentials, and create another class for the new ones.", a.outdated, a.machines,
		a.name, class.Spec.CredentialsRef.Name)
}
