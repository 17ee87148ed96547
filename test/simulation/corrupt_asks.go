package simulation

import (
	"regexp"
	"slices"
	"time"
)

// meaning describes what a changed field requests from Machinist, according to the documentation of the field.
// Machinist may carry out this request.
type meaning struct {
	field *regexp.Regexp
	// hows contains the kinds of changes that make this request. If hows is empty, every change of the field makes this
	// request.
	hows []ChangeKind
	// If mayLose is set, instances may be replaced or removed. If mayLeak is set, the run may leave an instance
	// without a machine. If mayDiffer is set, the final state need not be the same as without the corruption.
	mayLose, mayLeak, mayDiffer bool
	// If onlyDeleted is set, the entry applies only to objects that are being deleted.
	onlyDeleted bool
	// If onlySoon is set, the entry permits only events that happen soon after the change (see soonAfter).
	onlySoon bool
	// If isEndless is set, another client may repeatedly undo what Machinist does because of the corruption. In such
	// a run, Machinist must report the unending conflict in a condition or an event.
	isEndless bool
	// rules contains the names of the oracle's checks that this request turns off.
	rules []string
	why   string
}

const soonAfter = 5 * time.Second

// meanings contains an entry for each field whose change is a request to Machinist. Any change of another field must be
// repaired, have no effect, or be reported. Entries must follow the documentation of the field.
var meanings = []meaning{
	{field: regexp.MustCompile(`^MachineDeployment\.spec`), mayLose: true, mayDiffer: true,
		rules: []string{"J4", "J5", "stampede"},
		why:   "The spec of a deployment is the desired state of its fleet. Each change starts another rollout."},
	{field: regexp.MustCompile(`^MachineSet\.spec(\.replicas)?$`), mayLose: true, mayDiffer: true,
		rules: []string{"I3", "budget", "freeze", "meltdown", "autoscaler", "stampede", "J4", "J5"},
		why: "A set has as many machines as its replicas (rule exact-number-of-machines), until " +
			"its deployment corrects the number."},
	{field: regexp.MustCompile(`^MachineSet\.spec`), mayLose: true, mayDiffer: true,
		rules: []string{"I3", "budget", "autoscaler", "J4", "J5"},
		why:   "The spec of a set is the desired state of its machines."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.ownerReferences`), mayLose: true, mayDiffer: true,
		rules: []string{"I3", "budget", "freeze", "stampede", "J4", "J5"},
		why: "A deployment owns the sets that refer to it. The garbage collector of Kubernetes deletes an object if none of " +
			"its owners exists. So it deletes all machines of the set at once."},
	{field: regexp.MustCompile(`^Machine\.metadata\.ownerReferences`), mayLose: true, mayDiffer: true,
		rules: []string{"I3", "budget", "freeze", "J4", "J5"},
		why: "A set owns the machines that refer to it. The garbage collector of Kubernetes deletes an object if none of " +
			"its owners exists."},
	{field: regexp.MustCompile(`^(Machine|MachineSet|MachineDeployment)\.metadata\.labels\.\[machinist\.dev/migration\]`),
		mayDiffer: true, mayLose: true,
		why: "The label marks the objects that a migration has created, until the migration removes the label. " +
			"An object that gets the label again is marked again."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels(\.(app|tier|pool|\[machinist\.dev/template-hash\]))?$`),
		mayLose: true, mayDiffer: true, rules: []string{"I3", "budget", "J4", "J5"},
		why: "A set owns the machines that match its selector, and releases others (rule " +
			"adopt-only-when-missing)."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.labels(\.(app|tier|pool|\[machinist\.dev/template-hash\]))?$`),
		mayLose: true, mayDiffer: true, rules: []string{"I3", "J4", "J5"},
		why: "A deployment owns the sets that match its selector, and releases others."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels\.\[machinist\.dev/(provider|type-version)\]$`), mayDiffer: true,
		mayLose: true, rules: []string{"health"}, hows: []ChangeKind{ChangeOfAnother, ChangeEarlier, ChangeHighest},
		why: "The label assigns a machine to a provider or schema. Others leave the machine alone (rules " +
			"provider-serves-own-machines, unsupported-schema-only-deletable)."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels\.\[machinist\.dev/type-version\]$`), hows: []ChangeKind{ChangeEmptied},
		rules: []string{"health"},
		why: "Health checks ignore a machine of another schema, and do not count it as unhealthy " +
			"(rule remediation-annotations)."},
	{field: regexp.MustCompile(`^Machine\.spec`), mayLose: true, mayDiffer: true,
		why: "The spec of a machine is its desired state (rules update-in-place, " +
			"replacement-deletes-first)."},
	{field: regexp.MustCompile(`^Machine\.status\.phase$`), mayDiffer: true, rules: []string{"join"},
		hows: []ChangeKind{ChangeOfAnother, ChangeEarlier, ChangeOther, ChangeOther2, ChangeOther3, ChangeOther4},
		why: "The join timeout does not apply to a machine whose phase shows that it has run (rule " +
			"join-timeout-fails-machine)."},
	{field: regexp.MustCompile(`^Machine\.status(\.(instance|launch|applied)(\..*)?|` +
		`\.conditions(\.type=(Launched|Drained|VolumesDetached)(\..*)?)?)?$`),
		hows:    []ChangeKind{ChangeOfAnother, ChangeEarlier, ChangeHighest, ChangeLowest, ChangeOther, ChangeOther2, ChangeOther3, ChangeOther4},
		mayLose: true, mayLeak: true, mayDiffer: true, rules: []string{"I1", "I7", "order", "vanished", "join", "volumes"},
		why: "Only the status records the instance of a machine, its origin, and that its Node was drained. " +
			"So clients that may write the status of a machine are trusted with the machine."},
	{field: regexp.MustCompile(`^Machine\.status\.failureReason$`), mayLose: true, mayDiffer: true,
		hows: []ChangeKind{ChangeOfAnother, ChangeEarlier, ChangeOther, ChangeOther2, ChangeOther3, ChangeOther4}, rules: []string{"vanished"},
		why: "The failure reason of a machine shows whether its instance still exists. " +
			"Machinist trusts any valid reason."},
	{field: regexp.MustCompile(`^Machine\.metadata\.finalizers`), onlyDeleted: true, mayLeak: true, mayDiffer: true,
		rules: []string{"I1", "order", "J2"},
		why: "The finalizer keeps a machine until its instance is gone. Removing it from a machine that " +
			"is being deleted gives up the instance."},
	{field: regexp.MustCompile(`^Machine\.metadata\.finalizers`), onlySoon: true, mayLeak: true, mayDiffer: true,
		rules: []string{"I1", "order", "J2"},
		why: "The finalizer keeps a machine until its instance is gone. Here, the machine is deleted before its provider " +
			"can restore the finalizer."},
	{field: regexp.MustCompile(`^Machine\.metadata\.annotations(\.\[machinist\.dev/(do-not-disrupt|paused|preserve|` +
		`preserved-until|replace|delete-machine|delete-priority|skip-drain|skip-remediation|remediate|retry|` +
		`force-delete)\])?$`),
		mayLose: true, mayDiffer: true, rules: []string{"budget", "exempt"},
		why: "Administrators and autoscalers use annotations for requests about a machine: deletion, pause, " +
			"preservation, exemption."},
	{field: regexp.MustCompile(`^Machine\.metadata\.annotations\.\[machinist\.dev/released-from\]$`), mayDiffer: true,
		why: "The annotation records that a set has released the machine, whoever writes it."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.annotations(\.\[machinist\.dev/(receive-from|move-to)\])?$`),
		mayLose: true, mayDiffer: true, why: "A set that receives machines creates none, and a set that hands machines " +
			"over deletes none. Without the annotation, such sets create and delete machines until their deployment " +
			"sets the annotation again."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.annotations(\.\[machinist\.dev/(paused|unfreeze|` +
		`rollout-after|cluster-api-autoscaler-node-group-(min|max)-size)\])?$`), mayDiffer: true,
		why: "The sizes make a deployment a node group of an autoscaler, so its capacity is reported. The other " +
			"annotations pause and resume the deployment."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.annotations\.\[capacity\.cluster-autoscaler\.` +
		`kubernetes\.io/`), mayDiffer: true,
		why: "Machinist keeps the capacity annotations of administrators (rule capacity-annotations-of-people-stay)."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.labels`), mayDiffer: true,
		why: "The label machinist.dev/freeze stops the creation of machines."},
	{field: regexp.MustCompile(`^MachineClass\.(spec|metadata\.annotations)`), mayLose: true, mayDiffer: true,
		why: "Machines are created from the class, so a change is rolled out."},
	{field: regexp.MustCompile(`^MachineClass\.metadata\.finalizers`), mayDiffer: true,
		why: "The finalizer keeps a class while machines use it. Without the finalizer, a class that is being " +
			"deleted disappears at once."},
	{field: regexp.MustCompile(`^MachineHealthCheck\.spec(\.unhealthyNodeConditions|$)`), mayLose: true, mayDiffer: true,
		rules: []string{"I6"},
		why:   "A health check defines how long an unhealthy condition of a Node must last."},
	{field: regexp.MustCompile(`^MachineHealthCheck\.spec`), mayLose: true, mayDiffer: true,
		why: "A health check defines which machines are replaced because of their health, and when."},
	{field: regexp.MustCompile(`^MachineDisruptionBudget\.spec`), mayDiffer: true,
		why: "A budget defines which machines may be disrupted, and when."},
	{field: regexp.MustCompile(`^Migration\.spec\.(stage|planHash|accept)`), mayDiffer: true,
		why: "Administrators decide how far a migration proceeds."},
	{field: regexp.MustCompile(`^Migration\.spec\.fence`), mayDiffer: true, isEndless: true, rules: []string{"J1"},
		why: "The migrator stops the old controllers that administrators name in the spec, and takes the Leases that " +
			"administrators name."},
	{field: regexp.MustCompile(`^Migration\.status\.phase$`), hows: []ChangeKind{ChangeOther, ChangeOther2, ChangeOther3, ChangeOther4}, mayDiffer: true,
		rules: []string{"J1", "J2", "J3", "J4", "J5", "J6"},
		why: "A former leader may have reached a later phase, so the migrator trusts the phase (rule " +
			"migration-status-put-back)."},
	{field: regexp.MustCompile(`^Migration\.status(\.phase)?$`), onlySoon: true, rules: []string{"J6"},
		why: "A reconciliation acts on the status that it has read. The next one restores the status (rule " +
			"migration-status-put-back)."},
	{field: regexp.MustCompile(`^Secret\.(data|metadata\.labels(\.\[machinist\.dev/secret-use\])?$)`), mayDiffer: true,
		mayLeak: true, rules: []string{"incident"},
		why: "Providers need the Secrets with credentials and user data, and a label must allow their use. " +
			"Otherwise, machines wait, and orphans stay."},
	{field: regexp.MustCompile(`^Token\.metadata\.annotations(\.\[machinist\.dev/bootstrap-token-(machine|owner)\])?$`),
		mayDiffer: true, mayLose: true,
		why: "The annotations of a bootstrap token name the machine whose kubelet may join with the token. With " +
			"other annotations, no kubelet can join with the token until it expires."},
	{field: regexp.MustCompile(`^Token\.data`), mayDiffer: true, mayLose: true,
		why: "A node joins with the bootstrap token in its user data, and with no other token " +
			"(rule join-timeout-fails-machine)."},
	{field: regexp.MustCompile(`^Instance\.tags`), mayLeak: true, mayDiffer: true, isEndless: true,
		rules: []string{"I2", "J2", "J3", "incident"},
		why: "An instance is identified by its tags in the cloud. If the tags name no machine or another owner, Machinist " +
			"must not delete the instance."},
	{field: regexp.MustCompile(`^Node\.status`), mayDiffer: true, mayLose: true,
		rules: []string{"I6", "volumes", "meltdown", "agent"},
		why: "In the status of a Node, the kubelet reports its health and version. Machinist trusts this " +
			"report."},
	{field: regexp.MustCompile(`^Node\.metadata\.annotations(\.\[machinist\.dev/update-(requested|result)\])?$`),
		mayDiffer: true, rules: []string{"agent"},
		why: "The annotations contain the update request for the agent on a node, and its result. The agent follows " +
			"the request."},
	{field: regexp.MustCompile(`^Node\.metadata\.(labels|annotations)`), mayDiffer: true,
		why: "Most labels and annotations of a Node belong to others, and Machinist leaves them alone (rule " +
			"node-template-one-patch)."},
	{field: regexp.MustCompile(`^Node\.spec(\.unschedulable)?$`), mayDiffer: true,
		rules: []string{"I7", "agent"},
		why:   "If a Node is uncordoned during a drain, the drain cordons the Node again after the next pod."},
	{field: regexp.MustCompile(`^Node\.spec`), mayDiffer: true,
		why: "Administrators and other controllers cordon and taint Nodes. Machinist leaves these changes alone."},
}

func requestedBy(c Corruption, deleted bool) *meaning {
	family := c.Field.ReportName()
	for i := range meanings {
		m := &meanings[i]
		if m.field.MatchString(family) && (!m.onlyDeleted || deleted) && (len(m.hows) == 0 || slices.Contains(m.hows, c.How)) {
			return m
		}
	}
	return nil
}
