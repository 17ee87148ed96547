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

// window is how old what a process goes by may be: after an outage, a cache is behind for as long as it waits between
// two tries.
const window = time.Minute

// Keys of both clusters' databases.
const (
	registry = "/registry/"
	ours     = registry + v1beta1.GroupName + "/"
	events   = registry + "events/"
	nodes    = registry + "minions/"
)

// watcher has the judge see all that the databases tell.
type watcher struct {
	world *world
	ended sync.WaitGroup

	mu      sync.Mutex
	judge   *judge.Judge
	journal *history.Journal
	// secrets are what must be seen nowhere, by what they are.
	secrets map[string]string
	// changes and revisions tell how much was seen.
	changes  int
	revision map[string]int64
	errs     []error
	shown    int
}

func newWatcher(w *world) *watcher {
	return &watcher{
		world: w, judge: judge.New(window), journal: history.OpenJournal(filepath.Join(w.Dir(), "simcloud")),
		secrets: map[string]string{}, revision: map[string]int64{},
	}
}

func (o *watcher) start(ctx context.Context) {
	for name, dir := range map[string]string{"control": o.world.Control.Dir(), "target": o.world.Target.Dir()} {
		o.ended.Go(func() {
			err := history.Follow(ctx, filepath.Join(dir, "etcd.sock:0"), registry, 1, func(c history.Change) {
				o.change(name, c)
			})
			if err != nil {
				o.world.breach("the watcher of the %s cluster is blind: %v", name, err)
			}
		})
	}
	o.ended.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				o.mu.Lock()
				o.read()
				o.mu.Unlock()
			}
		}
	})
}

func (o *watcher) stop() error {
	o.ended.Wait()
	return errors.Join(o.errs...)
}

// do lets something be reported to the judge.
func (o *watcher) do(report func(*judge.Judge)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	report(o.judge)
}

func (o *watcher) managerEnded() { o.do(func(j *judge.Judge) { j.Ended(time.Now()) }) }

// others says that we delete a Machine or an instance.
func (o *watcher) others(id string) { o.do(func(j *judge.Judge) { j.Others(id) }) }

// keepSecret says what must not be seen.
func (o *watcher) keepSecret(what, secret string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.secrets[what] = secret
}

// read tells the judge what the cloud did. It holds the lock.
func (o *watcher) read() {
	now := time.Now()
	if err := o.journal.Read(func(in simcloud.Instance) { o.judge.Instance(now, in) }); err != nil {
		o.fail(err)
	}
}

func (o *watcher) fail(err error) {
	o.errs = append(o.errs, err)
	if len(o.errs) == 1 {
		o.world.breach("the watcher is blind: %v", err)
	}
}

// change tells the judge of one revision, after all that the cloud did before it.
func (o *watcher) change(cluster string, c history.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes++
	o.revision[cluster] = c.Revision
	if strings.HasPrefix(c.Key, ours) || strings.HasPrefix(c.Key, events) {
		for what, secret := range o.secrets {
			if bytes.Contains(c.Value, []byte(secret)) {
				o.world.breach("I10: %s is in %s at revision %d", what, c.Key, c.Revision)
			}
		}
	}
	now := time.Now()
	if cluster == "target" {
		if name, ok := strings.CutPrefix(c.Key, nodes); ok && c.Value == nil {
			o.read()
			o.judge.NodeGone(now, name)
			o.show()
		}
		return
	}
	object := empty(c.Key)
	if object == nil {
		return
	}
	o.read()
	text := c.Value
	if text == nil {
		text = c.Old
	}
	if err := json.Unmarshal(text, object); err != nil {
		o.fail(err)
		return
	}
	if c.Value == nil {
		o.judge.Gone(now, object)
	} else {
		o.judge.Object(now, object)
	}
	o.show()
}

// show prints breaches as they come. It holds the lock.
func (o *watcher) show() {
	found := o.judge.Found()
	for _, b := range found[o.shown:] {
		o.world.logf("BREACH %s", b)
	}
	o.shown = len(found)
}

// empty returns an object of the kind that a key has, nil if the judge does not check it.
func empty(key string) client.Object {
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
