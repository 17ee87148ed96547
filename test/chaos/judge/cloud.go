package judge

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Instance records a state of an instance. The caller must report every state, in order.
func (j *Judge) Instance(at time.Time, in simcloud.Instance) {
	uid := types.UID(in.Tags[provider.TagMachineUID])
	known := j.instances[in.ID]
	was := &instance{state: simcloud.StateTerminated}
	if known != nil {
		was = known
	} else {
		j.Instances++
		if uid == "" {
			j.breach(at, "I2", "instance %s was created for no Machine", in.ID)
		} else if m := j.machines[uid]; m != nil && m.gone {
			j.LateInstances++
		}
	}
	now := &instance{uid: uid, hostname: in.Hostname, state: in.State}
	j.instances[in.ID] = now
	if now.live() && !was.live() {
		for id, other := range j.instances {
			if id != in.ID && uid != "" && other.uid == uid && other.live() {
				j.breach(at, "I2", "machine %s has two instances, %s and %s", uid, id, in.ID)
			}
		}
	}
	if terminating(now.state) && known != nil && !terminating(was.state) && !j.expected[in.ID] {
		j.deletions = append(j.deletions, deletion{at, uid, in.ID})
	}
}

func terminating(s simcloud.InstanceState) bool {
	return s == simcloud.StateShuttingDown || s == simcloud.StateTerminated
}

// NodeGone records the removal of a Node. The caller must report every removal.
func (j *Judge) NodeGone(at time.Time, name string) {
	for id, in := range j.instances {
		if in.hostname == name && in.live() {
			j.breach(at, "I1", "node %s is gone, but its instance %s exists", name, id)
		}
	}
}

func (j *Judge) liveInstance(uid types.UID) (string, bool) {
	for id, in := range j.instances {
		if in.uid == uid && in.live() {
			return id, true
		}
	}
	return "", false
}
