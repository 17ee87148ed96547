package simulation

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// meaning is what a field asks for by its documented meaning when it is changed, so that this is no harm.
type meaning struct {
	field *regexp.Regexp
	// hows are the ways that ask for it; all if there are none.
	hows []How
	// containing is what the new value must contain to ask for it.
	containing string
	// lose: instances are replaced or removed. leak: an instance stays that no machine has. differ: the end is another
	// one than that of the undisturbed run.
	lose, leak, differ bool
	// deleted says that it asks for that only of an object that is being deleted.
	deleted bool
	// atOnce says that it asks for that only of what happens within soonAfter.
	atOnce bool
	// restless says that others may act against what is asked for without end. Then it has to be named.
	restless bool
	// rules are those of the oracle that do not hold for what is asked for.
	rules []string
	// why is the documented meaning.
	why string
}

// soonAfter is a time in which a process may not have been able to mend what was corrupted.
const soonAfter = 5 * time.Second

// fieldsAsking is the table of what fields ask for. What is not in it must be repaired, do no harm, or be named. An
// entry is the documented meaning of its field and nothing else.
var fieldsAsking = []meaning{
	{field: regexp.MustCompile(`^MachineDeployment\.spec`), lose: true, differ: true,
		rules: []string{"J4", "J5", "stampede"},
		why:   "The specification of a deployment is the desired state of its fleet: each change is a rollout of its own."},
	{field: regexp.MustCompile(`^MachineSet\.spec(\.replicas)?$`), lose: true, differ: true,
		rules: []string{"I3", "budget", "freeze", "meltdown", "autoscaler", "stampede", "J4", "J5"},
		why: "A set has as many machines as its replicas ask for (rule exact-number-of-machines), until " +
			"its deployment corrects it."},
	{field: regexp.MustCompile(`^MachineSet\.spec`), lose: true, differ: true,
		rules: []string{"I3", "budget", "autoscaler", "J4", "J5"},
		why:   "The specification of a set is the desired state of its machines."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.ownerReferences`), lose: true, differ: true,
		rules: []string{"I3", "budget", "freeze", "stampede", "J4", "J5"},
		why: "A deployment owns the sets that name it; Kubernetes' garbage collector deletes what names owners none of " +
			"which exists, here all machines of the set at once."},
	{field: regexp.MustCompile(`^Machine\.metadata\.ownerReferences`), lose: true, differ: true,
		rules: []string{"I3", "budget", "freeze", "J4", "J5"},
		why: "A set owns the machines that name it; Kubernetes' garbage collector deletes what names owners none of which " +
			"exists."},
	{field: regexp.MustCompile(`^(Machine|MachineSet|MachineDeployment)\.metadata\.labels\.\[machinist\.dev/migration\]`),
		differ: true, lose: true,
		why: "The label marks what a migration made, until it takes it off: who puts it on again marks it " +
			"again."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels(\.(app|tier|pool|\[machinist\.dev/template-hash\]))?$`),
		lose: true, differ: true, rules: []string{"I3", "budget", "J4", "J5"},
		why: "A set has the machines that match its selector, and releases others (rule " +
			"adopt-only-when-missing)."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.labels(\.(app|tier|pool|\[machinist\.dev/template-hash\]))?$`),
		lose: true, differ: true, rules: []string{"I3", "J4", "J5"},
		why: "A deployment has the sets that match its selector, and releases others."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels\.\[machinist\.dev/(provider|type-version)\]$`), differ: true,
		lose: true, rules: []string{"health"}, hows: []How{OfAnother, Earlier, Highest},
		why: "The label routes a machine to its provider or schema: others leave it alone (rules " +
			"provider-serves-own-machines, unsupported-schema-only-deletable)."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels\.\[machinist\.dev/type-version\]$`), hows: []How{Emptied},
		rules: []string{"health"},
		why: "A machine of another schema is not judged by health checks, and does not count among the unhealthy " +
			"(rule remediation-annotations)."},
	{field: regexp.MustCompile(`^Machine\.spec`), lose: true, differ: true,
		why: "The specification of a machine is its desired state (rules update-in-place, " +
			"replacement-deletes-first)."},
	{field: regexp.MustCompile(`^Machine\.status\.phase$`), differ: true, rules: []string{"join"},
		hows: []How{OfAnother, Earlier, Other, Other2, Other3, Other4},
		why: "A machine that is said to have run has the time of one that has, and not the time to join (rule " +
			"join-timeout-fails-machine)."},
	{field: regexp.MustCompile(`^Machine\.status$`), hows: []How{OfAnother, Earlier}, containing: `"failureReason":`,
		lose: true, differ: true, rules: []string{"vanished"},
		why: "The status of a machine that failed has a reason, which asks for what it asks for alone."},
	{field: regexp.MustCompile(`^Machine\.status$`), hows: []How{OfAnother, Earlier}, differ: true,
		rules: []string{"join"},
		why:   "The status of a machine that has run has its phase, which asks for what it asks for alone."},
	{field: regexp.MustCompile(`^Machine\.status\.failureReason$`), lose: true, differ: true,
		hows: []How{OfAnother, Earlier, Other, Other2, Other3, Other4}, rules: []string{"vanished"},
		why: "Of a machine that failed the reason says what is left of it: one whose instance has vanished has nothing to " +
			"recover. Another reason that there is is believed."},
	{field: regexp.MustCompile(`^Machine\.status\.applied`), hows: []How{OfAnother, Earlier}, differ: true,
		why: "What an instance was made from is known from there alone, and a former leader may have written it."},
	{field: regexp.MustCompile(`^Machine\.metadata\.finalizers`), deleted: true, leak: true, differ: true,
		rules: []string{"I1", "order", "J2"},
		why: "The finalizer holds a machine until its instance is gone: who takes it off a machine that " +
			"is being deleted gives the instance up."},
	{field: regexp.MustCompile(`^Machine\.metadata\.finalizers`), atOnce: true, leak: true, differ: true,
		rules: []string{"I1", "order", "J2"},
		why:   "The same, where the machine is deleted before its provider can put the finalizer back."},
	{field: regexp.MustCompile(`^Machine\.metadata\.annotations(\.\[machinist\.dev/(do-not-disrupt|paused|preserve|` +
		`preserved-until|replace|delete-machine|delete-priority|skip-drain|skip-remediation|remediate|retry|` +
		`force-delete)\])?$`),
		lose: true, differ: true, rules: []string{"budget", "exempt"},
		why: "Annotations are how people and autoscalers ask for single things of a machine: deletion, pause, " +
			"preservation, exemption."},
	{field: regexp.MustCompile(`^Machine\.metadata\.annotations\.\[machinist\.dev/released-from\]$`), differ: true,
		why: "The annotation says that a set has released the machine: who writes it says that."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.annotations(\.\[machinist\.dev/(receive-from|move-to)\])?$`),
		lose: true, differ: true, why: "A set that is to receive machines makes none, and one that is to hand them over " +
			"deletes none: without the order they do, until their deployment repeats it."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.annotations(\.\[machinist\.dev/(paused|unfreeze|` +
		`rollout-after|cluster-api-autoscaler-node-group-(min|max)-size)\])?$`), differ: true,
		why: "The sizes make a deployment one of an autoscaler, which gets to know its capacity; the others pause it and " +
			"let it go on."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.annotations\.\[capacity\.cluster-autoscaler\.` +
		`kubernetes\.io/`), differ: true,
		why: "What people write there stays (rule capacity-annotations-of-people-stay)."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.labels`), differ: true,
		why: "The label machinist.dev/freeze stops the creation of machines."},
	{field: regexp.MustCompile(`^MachineClass\.(spec|metadata\.annotations)`), lose: true, differ: true,
		why: "The class is what machines are made from: a change is rolled out."},
	{field: regexp.MustCompile(`^MachineClass\.metadata\.finalizers`), differ: true,
		why: "The finalizer holds a class while machines use it: a class that is being deleted goes " +
			"without it."},
	{field: regexp.MustCompile(`^MachineHealthCheck\.spec(\.unhealthyNodeConditions|$)`), lose: true, differ: true,
		rules: []string{"I6"},
		why:   "A health check says for how long a condition of a Node has to last."},
	{field: regexp.MustCompile(`^MachineHealthCheck\.spec`), lose: true, differ: true,
		why: "Which machines are replaced because of their health, and when, is what a health check asks for."},
	{field: regexp.MustCompile(`^MachineDisruptionBudget\.spec`), differ: true,
		why: "Which machines may be disrupted, and when, is what a budget asks for."},
	{field: regexp.MustCompile(`^Migration\.spec\.(stage|planHash|accept)`), differ: true,
		why: "How far a migration goes is what people decide."},
	{field: regexp.MustCompile(`^Migration\.spec\.fence`), differ: true, restless: true, rules: []string{"J1"},
		why: "The migrator stops the old controllers that people name, and takes their Leases where people say that they " +
			"hold some."},
	{field: regexp.MustCompile(`^Migration\.status\.phase$`), hows: []How{Other, Other2, Other3, Other4}, differ: true,
		rules: []string{"J1", "J2", "J3", "J4", "J5", "J6"},
		why: "A later phase is one that a former leader may have reached: it is believed (rule " +
			"migration-status-put-back)."},
	{field: regexp.MustCompile(`^Migration\.status(\.phase)?$`), atOnce: true, rules: []string{"J6"},
		why: "A pass that is under way acts by the status that it read; the next one puts back what somebody wrote (rule " +
			"migration-status-put-back)."},
	{field: regexp.MustCompile(`^Secret\.(data|metadata\.labels(\.\[machinist\.dev/secret-use\])?$)`), differ: true,
		leak: true, rules: []string{"incident"},
		why: "Credentials and user data are what instances are made, found and removed with, where a label allows " +
			"their use: without them machines wait, and an orphan stays."},
	{field: regexp.MustCompile(`^Token\.metadata\.annotations(\.\[machinist\.dev/bootstrap-token-(machine|owner)\])?$`),
		differ: true, lose: true,
		why: "The annotations of a bootstrap token name the machine whose Node its bearer may become: with others nobody " +
			"is let in with it, until it expires."},
	{field: regexp.MustCompile(`^Token\.data`), differ: true, lose: true,
		why: "A node joins with the bootstrap token that its user data holds: with another one it cannot " +
			"(rule join-timeout-fails-machine)."},
	{field: regexp.MustCompile(`^Instance\.tags`), leak: true, differ: true, restless: true,
		rules: []string{"I2", "J2", "J3", "incident"},
		why: "An instance is known by its tags at the cloud: one whose tags name nobody, or others, is " +
			"not Machinist's to remove."},
	{field: regexp.MustCompile(`^Node\.status`), differ: true, lose: true,
		rules: []string{"I6", "volumes", "meltdown", "agent"},
		why: "The status of a Node is its kubelet's report of its health and version, which Machinist " +
			"believes."},
	{field: regexp.MustCompile(`^Node\.metadata\.annotations(\.\[machinist\.dev/update-(requested|result)\])?$`),
		differ: true, rules: []string{"agent"},
		why: "By these annotations the agent on a node is asked for an update, and answers: it does what it is asked for."},
	{field: regexp.MustCompile(`^Node\.metadata\.(labels|annotations)`), differ: true,
		why: "Most labels and annotations of a Node are others', which Machinist leaves alone (rule " +
			"node-template-one-patch)."},
	{field: regexp.MustCompile(`^Node\.spec(\.unschedulable)?$`), differ: true,
		rules: []string{"I7", "agent"},
		why:   "Who uncordons a Node during a drain is heard after the next pod: then it is cordoned again."},
	{field: regexp.MustCompile(`^Node\.spec`), differ: true,
		why: "People and other controllers cordon and taint Nodes, which Machinist leaves alone."},
}

// askedBy returns what a corruption to a value, as it is shown, asks for; nil is nothing.
func askedBy(c Corruption, value string, deleted bool) *meaning {
	family := c.Field.Family()
	for i := range fieldsAsking {
		m := &fieldsAsking[i]
		if m.field.MatchString(family) && (!m.deleted || deleted) && (len(m.hows) == 0 || slices.Contains(m.hows, c.How)) &&
			strings.Contains(value, m.containing) {
			return m
		}
	}
	return nil
}
