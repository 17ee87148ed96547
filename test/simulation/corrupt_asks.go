package simulation

import (
	"regexp"
	"slices"
	"time"
)

// meaning describes what a changed field requests from Machinist, according to the documentation of the field.
// Machinist may carry out this request. If the fleet then cannot settle, a condition must still name the cause.
type meaning struct {
	field *regexp.Regexp
	// hows contains the kinds of changes that make this request. If hows is empty, every change of the field makes this
	// request.
	hows []ChangeKind
	// If mayLose is set, instances may be replaced or removed. If mayLeak is set, the run may leave an instance
	// without a machine. If mayDiffer is set, the final state need not be the same as without the corruption.
	mayLose, mayLeak, mayDiffer bool
	// If onlySoon is set, the entry permits only events that happen soon after the change (see soonAfter).
	onlySoon bool
	// rules contains the names of the oracle's checks that this request turns off.
	rules []string
	why   string
}

const soonAfter = 5 * time.Second

// otherValues are all changes that leave a value in the field, except an empty one.
var otherValues = []ChangeKind{ChangeOfAnother, ChangeEarlier, ChangeHighest, ChangeLowest, ChangeOther,
	ChangeOther2, ChangeOther3, ChangeOther4}

// meanings contains an entry for each field whose change is a request to Machinist. Any change of another field must be
// repaired, have no effect, or be reported. Entries must follow the documentation of the field.
var meanings = []meaning{
	{field: regexp.MustCompile(`^(Machine|MachineSet)\.metadata\.ownerReferences`), mayLose: true, mayDiffer: true,
		rules: []string{"I3", "budget", "freeze", "scale-down", "stampede", "J4", "J5"},
		why: "An object belongs to the owner that it refers to. The garbage collector of Kubernetes deletes an object if " +
			"none of its owners exists. So it may delete all machines of a set at once."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels(\.(app|tier|pool|\[machinist\.dev/template-hash\]))?$`),
		mayLose: true, mayDiffer: true, rules: []string{"I3", "budget", "scale-down", "J4", "J5"},
		why: "A set owns the machines that match its selector, and releases others (rule adopt-only-when-missing)."},
	{field: regexp.MustCompile(`^(Machine|MachineSet|MachineDeployment)\.metadata\.labels\.\[machinist\.dev/migration\]`),
		mayDiffer: true, mayLose: true,
		why: "The label marks the objects that a migration has created, until the migration removes the label. " +
			"An object that gets the label again is marked again."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels\.\[machinist\.dev/(provider|type-version)\]$`), mayDiffer: true,
		mayLose: true, rules: []string{"health"}, hows: []ChangeKind{ChangeOfAnother, ChangeEarlier, ChangeHighest},
		why: "The label assigns a machine to a provider or schema. Others leave the machine alone (rules " +
			"provider-serves-own-machines, unsupported-schema-only-deletable)."},
	{field: regexp.MustCompile(`^Machine\.metadata\.labels\.\[machinist\.dev/type-version\]$`), hows: []ChangeKind{ChangeEmptied},
		rules: []string{"health"},
		why: "Health checks ignore a machine of another schema, and do not count it as unhealthy " +
			"(rule remediation-annotations)."},
	{field: regexp.MustCompile(`^Machine\.status\.phase$`), mayDiffer: true, rules: []string{"join"}, hows: otherValues,
		why: "The join timeout does not apply to a machine whose phase shows that it has run (rule " +
			"join-timeout-fails-machine)."},
	{field: regexp.MustCompile(`^Machine\.status(\.(instance|launch|applied)(\..*)?|` +
		`\.conditions(\.type=(Launched|Drained|VolumesDetached)(\..*)?)?)?$`), hows: otherValues,
		mayLose: true, mayLeak: true, mayDiffer: true, rules: []string{"I1", "I7", "order", "vanished", "join", "volumes"},
		why: "Only the status records the instance of a machine, its origin, and that its Node was drained. " +
			"So clients that may write the status of a machine are trusted with the machine."},
	{field: regexp.MustCompile(`^Machine\.status\.failureReason$`), mayLose: true, mayDiffer: true, hows: otherValues,
		rules: []string{"vanished"},
		why: "The failure reason of a machine shows whether its instance still exists. " +
			"Machinist trusts any valid reason."},
	{field: regexp.MustCompile(`^Machine\.metadata\.finalizers`), onlySoon: true, mayLeak: true, mayDiffer: true,
		rules: []string{"I1", "order", "J2"},
		why: "The finalizer keeps a machine until its instance is gone. If the machine is being deleted before its " +
			"provider can restore the finalizer, the instance is given up."},
	{field: regexp.MustCompile(`^Machine\.metadata\.annotations(\.\[machinist\.dev/(do-not-disrupt|paused|preserve|` +
		`preserved-until|released-from|replace|delete-machine|delete-priority|skip-drain|skip-remediation|remediate|retry|` +
		`force-delete)\])?$`),
		mayLose: true, mayDiffer: true, rules: []string{"budget", "exempt"},
		why: "Administrators and autoscalers use annotations for requests about a machine: deletion, pause, " +
			"preservation, exemption, release."},
	{field: regexp.MustCompile(`^MachineSet\.metadata\.annotations(\.\[machinist\.dev/(receive-from|move-to)\])?$`),
		mayLose: true, mayDiffer: true, why: "A set that receives machines creates none, and a set that hands machines " +
			"over deletes none. Without the annotation, such sets create and delete machines until their deployment " +
			"sets the annotation again."},
	{field: regexp.MustCompile(`^MachineDeployment\.metadata\.(labels|annotations(\.\[(machinist\.dev/(paused|unfreeze|` +
		`rollout-after|cluster-api-autoscaler-node-group-(min|max)-size)\]|capacity\.cluster-autoscaler\.))?)`), mayDiffer: true,
		why: "The label machinist.dev/freeze stops the creation of machines. The annotations pause and resume the " +
			"deployment, make it a node group of an autoscaler, or declare its capacity (rule " +
			"capacity-annotations-of-people-stay)."},
	{field: regexp.MustCompile(`^MachineClass\.metadata\.(annotations|finalizers)`), mayDiffer: true,
		why: "Administrators permit the removal of orphans with an annotation. The finalizer keeps a class while machines " +
			"use it. Without the finalizer, a class that is being deleted disappears at once."},
	{field: regexp.MustCompile(`^Migration\.status\.phase$`), hows: []ChangeKind{ChangeOther, ChangeOther2, ChangeOther3, ChangeOther4}, mayDiffer: true,
		rules: []string{"J1", "J2", "J3", "J4", "J5", "J6"},
		why: "A former leader may have reached a later phase, so the migrator trusts the phase (rule " +
			"migration-status-put-back)."},
	{field: regexp.MustCompile(`^Migration\.status(\.phase)?$`), onlySoon: true, rules: []string{"J6"},
		why: "A reconciliation acts on the status that it has read. The next one restores the status (rule " +
			"migration-status-put-back)."},
	{field: regexp.MustCompile(`^Secret\.metadata\.labels(\.\[machinist\.dev/secret-use\])?$`), mayDiffer: true,
		mayLeak: true, rules: []string{"incident"},
		why: "A label must allow providers to use a Secret with credentials and user data. Otherwise, machines wait, and " +
			"orphans stay."},
	{field: regexp.MustCompile(`^Token\.metadata\.annotations(\.\[machinist\.dev/bootstrap-token-(machine|owner)\])?$`),
		mayDiffer: true, mayLose: true,
		why: "The annotations of a bootstrap token name the machine whose kubelet may join with the token. With " +
			"other annotations, no kubelet can join with the token until it expires."},
}

func requestedBy(c Corruption) *meaning {
	family := c.Field.ReportName()
	for i := range meanings {
		m := &meanings[i]
		if m.field.MatchString(family) && (len(m.hows) == 0 || slices.Contains(m.hows, c.How)) {
			return m
		}
	}
	return nil
}
