// Package history reads every change of a fleet from etcd and from the journal of the simulated cloud. The package
// reads these databases directly, because the servers in front of them may stop, forget old changes, or become
// unreachable.
package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const retryInterval = 100 * time.Millisecond

// Change is one revision of one key.
type Change struct {
	Key      string
	Revision int64
	// ReadTime is the time when this program received the change from etcd. The delay after the write is short,
	// except after etcd was unreachable.
	ReadTime time.Time
	// Value is the new value, or nil if the key was deleted. Old is the old value, or nil if the key is new.
	Value, Old []byte
}

// Follow reports all changes of keys with the prefix, in order, from the given revision until ctx is done. Follow
// continues if etcd restarts on the same socket. Follow fails if etcd has compacted a revision that Follow has not
// read yet.
func Follow(ctx context.Context, socket, prefix string, from int64, report func(Change)) error {
	dialer := &net.Dialer{}
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
	f := &follower{client: c, prefix: prefix, next: from, report: report}
	for ctx.Err() == nil {
		if err := f.watch(ctx); errors.Is(err, errCompacted) {
			return fmt.Errorf("follow etcd at %s from revision %d: %w", socket, f.next, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
	return nil
}

var errCompacted = errors.New("the revision was compacted, so older changes are lost")

type follower struct {
	client *http.Client
	prefix string
	next   int64
	report func(Change)
}

type keyValue struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Revision int64  `json:"mod_revision,string"`
}

type watchResponse struct {
	Result struct {
		Canceled     bool   `json:"canceled"`
		CancelReason string `json:"cancel_reason"`
		Compacted    int64  `json:"compact_revision,string"`
		Events       []struct {
			KV   keyValue `json:"kv"`
			Prev keyValue `json:"prev_kv"`
		} `json:"events"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

func (f *follower) watch(ctx context.Context) error {
	end := []byte(f.prefix)
	end[len(end)-1]++
	body, err := json.Marshal(map[string]any{"create_request": map[string]any{
		"key": []byte(f.prefix), "range_end": end, "start_revision": f.next, "prev_kv": true,
	}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/watch", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := f.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for decoder := json.NewDecoder(answer.Body); ; {
		var w watchResponse
		if err := decoder.Decode(&w); err != nil {
			return err
		}
		if w.Result.Compacted > 0 {
			return errCompacted
		}
		if w.Result.Canceled || w.Error != nil {
			return fmt.Errorf("etcd ended the watch: %s %s", w.Result.CancelReason, w.Error)
		}
		for _, e := range w.Result.Events {
			if e.KV.Revision < f.next {
				continue
			}
			// The event of a deletion has no value: Value is empty, and Old is the last value of the key.
			f.report(Change{Key: string(e.KV.Key), Revision: e.KV.Revision, ReadTime: time.Now(), Value: e.KV.Value,
				Old: e.Prev.Value})
		}
		if n := len(w.Result.Events); n > 0 {
			f.next = max(f.next, w.Result.Events[n-1].KV.Revision+1)
		}
	}
}
