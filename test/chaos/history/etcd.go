// Package history reads what a fleet's databases tell of all that ever was, change by change, past the servers before
// them: those may stop, forget, or be cut off.
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

// again is how long to wait for an etcd that is unreachable.
const again = 100 * time.Millisecond

// Change is one revision of one key.
type Change struct {
	Key      string
	Revision int64
	// Read is when this program has heard of it, a moment after it came about unless the follower was cut off.
	Read time.Time
	// Value is what the key has now; nil if it is deleted. Old is what it had before, nil if it is new.
	Value, Old []byte
}

// Follow tells of every change of a key with a prefix from a revision on, in their order, until the context ends or a
// revision cannot be had any more. It asks the etcd that listens on a socket, however often that ends and begins again.
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
		case <-time.After(again):
		}
	}
	return nil
}

var errCompacted = errors.New("it was compacted, and what was before is lost")

type follower struct {
	client *http.Client
	prefix string
	next   int64
	report func(Change)
}

// pair is a key and what it has, as etcd's JSON says it.
type pair struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value"`
	Revision int64  `json:"mod_revision,string"`
}

type watched struct {
	Result struct {
		Canceled     bool   `json:"canceled"`
		CancelReason string `json:"cancel_reason"`
		Compacted    int64  `json:"compact_revision,string"`
		Events       []struct {
			KV   pair `json:"kv"`
			Prev pair `json:"prev_kv"`
		} `json:"events"`
	} `json:"result"`
	Error json.RawMessage `json:"error"`
}

// watch follows until the connection breaks.
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
		var w watched
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
			// A key that is deleted comes without a value.
			f.report(Change{Key: string(e.KV.Key), Revision: e.KV.Revision, Read: time.Now(), Value: e.KV.Value,
				Old: e.Prev.Value})
		}
		if n := len(w.Result.Events); n > 0 {
			f.next = max(f.next, w.Result.Events[n-1].KV.Revision+1)
		}
	}
}
