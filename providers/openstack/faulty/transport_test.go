package faulty

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const id = "1a111111-2222-4333-8444-555555555555"

type nova struct {
	server *httptest.Server
	bodies chan string
	gone   bool
}

func newNova(t *testing.T) (*nova, *Transport) {
	t.Helper()
	n := &nova{bodies: make(chan string, 10)}
	n.server = httptest.NewServer(n)
	t.Cleanup(n.server.Close)
	return n, &Transport{Base: http.DefaultTransport}
}

func (n *nova) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	entry := map[string]any{"id": id, "name": "a", "status": "ACTIVE", "metadata": map[string]any{"k": "v"}}
	switch {
	case r.Method != http.MethodGet:
		n.bodies <- r.Method + " " + string(raw)
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]any{"server": entry})
	case n.gone && !strings.HasSuffix(r.URL.Path, "/detail"):
		w.WriteHeader(http.StatusNotFound)
	case strings.HasSuffix(r.URL.Path, "/detail") && (n.gone || r.URL.Query().Get("name") == "^b"):
		_ = json.NewEncoder(w).Encode(map[string]any{"servers": []any{}})
	case strings.HasSuffix(r.URL.Path, "/detail"):
		_ = json.NewEncoder(w).Encode(map[string]any{"servers": []any{entry}})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"server": entry})
	}
}

// call returns the status and the body of the answer, or the error.
func (n *nova) call(t *testing.T, transport *Transport, method, path, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, raw)
}

func TestRulesChangeAnswers(t *testing.T) {
	const create, read, list = "/servers", "/servers/" + id, "/servers/detail"
	refuse := func(Call) *http.Response { return ErrorAnswer(503, "serviceUnavailable", "busy", "Retry-After", "7") }
	for name, test := range map[string]struct {
		rule         Rule
		method, path string
		want         string // part of the expected answer
	}{
		"refused":                          {Rule{Answer: refuse}, "GET", read, `503 {"serviceUnavailable"`},
		"first call is forwarded":          {Rule{Answer: refuse, Skip: 1}, "GET", read, `200 {"server"`},
		"answer is lost":                   {Rule{LosesAnswer: Call.CreatesServer}, "POST", create, "before an answer came"},
		"answer of other call is not lost": {Rule{LosesAnswer: Call.CreatesServer}, "GET", read, `200 {"server"`},
		"read of new server":               {Rule{LateReads: time.Hour}, "GET", read, "404"},
		"list without new server":          {Rule{LateLists: time.Hour}, "GET", list, `{"servers":[]}`},
		"new server without metadata":      {Rule{LateMetadata: time.Hour}, "GET", read, `"metadata":{}`},
		"repeated entry":                   {Rule{UnsteadyLists: true}, "GET", list, `"a","status":"ACTIVE"},{"id"`},
		"ignored filter":                   {Rule{NoFilters: true}, "GET", list + "?name=^b", `"name":"a"`},
		"applied filter":                   {Rule{}, "GET", list + "?name=^b", `{"servers":[]}`},
		"quota used up":                    {Rule{QuotaFreesLate: time.Hour}, "POST", create, "403"},
	} {
		t.Run(name, func(t *testing.T) {
			n, transport := newNova(t)
			n.call(t, transport, "POST", create, "{}") // This call records the server as new.
			end := transport.Inject(test.rule)
			if got := n.call(t, transport, test.method, test.path, "{}"); !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
			end()
			if got := n.call(t, transport, "GET", read, ""); !strings.HasPrefix(got, `200 {"server"`) || !strings.Contains(got, `"k":"v"`) {
				t.Errorf("after the rule was removed: got %s", got)
			}
		})
	}
}

func TestDeletedServerIsShownForSomeTime(t *testing.T) {
	n, transport := newNova(t)
	n.call(t, transport, "GET", "/servers/"+id, "")
	n.gone = true
	end := transport.Inject(Rule{LateReads: time.Hour, LateLists: time.Hour, PartsInUse: time.Hour})
	for _, path := range []string{"/servers/" + id, "/servers/detail"} {
		if got := n.call(t, transport, "GET", path, ""); !strings.Contains(got, `"status":"ACTIVE"`) {
			t.Errorf("%s: got %s, want the deleted server", path, got)
		}
	}
	if got := n.call(t, transport, "DELETE", "/ports/1", ""); !strings.HasPrefix(got, "409") {
		t.Errorf("deletion of a port: got %s, want 409", got)
	}
	end()
	if got := n.call(t, transport, "GET", "/servers/"+id, ""); !strings.HasPrefix(got, "404") {
		t.Errorf("after the rule was removed: got %s", got)
	}
}

func TestCallIsExecutedLateAndWithOtherFlavor(t *testing.T) {
	n, transport := newNova(t)
	transport.Inject(Rule{ExecuteAfter: time.Millisecond, Answer: func(c Call) *http.Response {
		if !c.Writes() {
			return nil
		}
		return ErrorAnswer(504, "gatewayTimeout", "late")
	}})
	if got := n.call(t, transport, "POST", "/servers", `{"server":{"flavorRef":"a"}}`); !strings.HasPrefix(got, "504") {
		t.Errorf("got %s, want 504", got)
	}
	transport.Wait()
	if got := <-n.bodies; got != `POST {"server":{"flavorRef":"a"}}` {
		t.Errorf("got the delayed call %s", got)
	}
	other := &Transport{Base: http.DefaultTransport}
	other.Inject(Rule{Flavor: "b"})
	n.call(t, other, "POST", "/servers", `{"server":{"flavorRef":"a"}}`)
	if got := <-n.bodies; got != `POST {"server":{"flavorRef":"b"}}` {
		t.Errorf("got the call %s, want flavor b", got)
	}
}
