package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/chaos/history"
	"machinist.dev/machinist/test/chaos/judge"
)

// window is the maximum age of the data that a process acts on. After an outage, a cache stays stale until its informer
// retries.
const window = time.Minute

const (
	registry = "/registry/"
	ours     = registry + v1beta1.GroupName + "/"
	events   = registry + "events/"
	nodes    = registry + "minions/"
)

type watcher struct {
	experiment *experiment
	tasks      sync.WaitGroup

	mu      sync.Mutex
	judge   *judge.Judge
	journal *history.Journal
	// secrets contains the secret values, which must not appear in any log. The keys are descriptions of the values.
	secrets  map[string]string
	changes  int
	revision map[string]int64
	errs     []error
	printed  int
}

func newWatcher(e *experiment) *watcher {
	return &watcher{
		experiment: e, judge: judge.New(window), journal: history.OpenJournal(filepath.Join(e.Dir(), "simcloud")),
		secrets: map[string]string{}, revision: map[string]int64{},
	}
}

func (o *watcher) start(ctx context.Context) {
	for name, dir := range map[string]string{"control": o.experiment.Control.Dir(), "target": o.experiment.Target.Dir()} {
		o.tasks.Go(func() {
			err := history.Follow(ctx, filepath.Join(dir, "etcd.sock:0"), registry, 1, func(c history.Change) {
				o.change(name, c)
			})
			if err != nil {
				o.experiment.breach("watch the %s cluster: %v", name, err)
			}
		})
	}
	o.tasks.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				o.mu.Lock()
				o.readJournal()
				o.mu.Unlock()
			}
		}
	})
}

func (o *watcher) stop() error {
	o.tasks.Wait()
	return errors.Join(o.errs...)
}

func (o *watcher) withJudge(use func(*judge.Judge)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	use(o.judge)
}

func (o *watcher) managerEnded() { o.withJudge(func(j *judge.Judge) { j.ProcessEnded(time.Now()) }) }

func (o *watcher) expectDeletion(id string) {
	o.withJudge(func(j *judge.Judge) { j.ExpectDeletion(id) })
}

func (o *watcher) addSecret(name, secret string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.secrets[name] = secret
}

// readJournal passes new changes of the cloud to the judge. The caller holds the lock.
func (o *watcher) readJournal() {
	now := time.Now()
	if err := o.journal.Read(func(in simcloud.Instance) { o.judge.Instance(now, in) }); err != nil {
		o.fail(err)
	}
}

func (o *watcher) fail(err error) {
	o.errs = append(o.errs, err)
	if len(o.errs) == 1 {
		o.experiment.breach("watch the fleet: %v", err)
	}
}

// change passes changes to the judge in order: first the earlier changes of the cloud, and then the given change of a
// cluster.
func (o *watcher) change(cluster string, c history.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
	o.revision[cluster] = c.Revision
	if strings.HasPrefix(c.Key, ours) || strings.HasPrefix(c.Key, events) {
		for name, secret := range o.secrets {
			if bytes.Contains(c.Value, []byte(secret)) {
				o.experiment.breach("I10: %s is in %s at revision %d", name, c.Key, c.Revision)
			}
		}
	}
	now := time.Now()
	if cluster == "target" {
		if name, ok := strings.CutPrefix(c.Key, nodes); ok && c.Value == nil {
			o.readJournal()
			o.judge.NodeGone(now, name)
			o.printBreaches()
		}
		return
	}
	object := newObject(c.Key)
	if object == nil {
		return
	}
	o.readJournal()
	text := c.Value
	if text == nil {
		text = c.Old
	}
	if err := json.Unmarshal(text, object); err != nil {
		o.fail(err)
		return
	}
	if c.Value == nil {
		o.judge.ObjectGone(now, object)
	} else {
		o.judge.Object(now, object)
	}
	o.printBreaches()
}

func (o *watcher) printBreaches() {
	found := o.judge.CertainBreaches()
	for _, b := range found[o.printed:] {
		o.experiment.logf("BREACH %s", b)
	}
	o.printed = len(found)
}

// newObject returns an empty object for a key of etcd, or nil if the judge does not check the kind.
func newObject(key string) client.Object {
	rest, ok := strings.CutPrefix(key, ours)
	if !ok {
		return nil
	}
	kind, _, _ := strings.Cut(rest, "/")
	switch kind {
	case "machines":
		return &v1beta1.Machine{}
	case "machinesets":
		return &v1beta1.MachineSet{}
	case "machinedeployments":
		return &v1beta1.MachineDeployment{}
	}
	return nil
}
