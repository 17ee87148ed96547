package auditlog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func line(user, verb, group, resource, subresource string, code int) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete",`+
		`"requestURI":"/apis/x?fieldManager=m","verb":%q,"user":{"username":%q,"groups":["system:authenticated"]},"sourceIPs":["127.0.0.1"],`+
		`"objectRef":{"resource":%q,"namespace":"default","name":"a","apiGroup":%q,"apiVersion":"v1","subresource":%q},`+
		`"responseStatus":{"metadata":{},"code":%d}}`+"\n", verb, user, resource, group, subresource, code)
}

func TestCount(t *testing.T) {
	const ours, group = "manager", "machinist.dev"
	create := Call{"create", group, "machines", ""}
	for name, test := range map[string]struct {
		log    string
		filter Filter
		want   Counts
	}{
		"every writing verb": {
			log: line(ours, "create", group, "machines", "", 201) +
				line(ours, "update", group, "machines", "", 200) +
				line(ours, "patch", group, "machines", "status", 200) +
				line(ours, "delete", group, "machines", "", 202) +
				line(ours, "deletecollection", group, "machines", "", 200),
			want: Counts{Writes: 5, ByCall: map[Call]int{
				create:                                      1,
				{"update", group, "machines", ""}:           1,
				{"patch", group, "machines", "status"}:      1,
				{"delete", group, "machines", ""}:           1,
				{"deletecollection", group, "machines", ""}: 1,
			}},
		},
		"no reading verb": {
			log: line(ours, "get", group, "machines", "", 200) +
				line(ours, "list", group, "machines", "", 200) +
				line(ours, "watch", group, "machines", "", 200),
		},
		"no leases and reviews, except resources of the same name in other groups": {
			log: line(ours, "update", "coordination.k8s.io", "leases", "", 200) +
				line(ours, "create", "authentication.k8s.io", "tokenreviews", "", 201) +
				line(ours, "create", "authorization.k8s.io", "subjectaccessreviews", "", 201) +
				line(ours, "create", "authorization.k8s.io", "selfsubjectrulesreviews", "", 201) +
				line(ours, "create", "bookshop.example.com", "reviews", "", 201) +
				line(ours, "create", "housing.example.com", "leases", "", 201),
			want: Counts{Writes: 2, ByCall: map[Call]int{
				{"create", "bookshop.example.com", "reviews", ""}: 1,
				{"create", "housing.example.com", "leases", ""}:   1,
			}},
		},
		"events of both groups separately": {
			log: line(ours, "create", "", "events", "", 201) +
				line(ours, "patch", "events.k8s.io", "events", "", 200) +
				line(ours, "create", "calendar.example.com", "events", "", 201),
			want: Counts{Writes: 1, Events: 2, ByCall: map[Call]int{{"create", "calendar.example.com", "events", ""}: 1}},
		},
		"refused requests separately": {
			log: line(ours, "create", group, "machines", "", 409) +
				line(ours, "create", group, "machines", "", 403) +
				line(ours, "create", group, "machines", "", 504) +
				line(ours, "get", group, "machines", "", 404),
			want: Counts{Conflicts: 1, Failed: 2},
		},
		"no dry runs": {
			log: strings.Replace(line(ours, "create", group, "machines", "", 201), "?fieldManager=m", "?dryRun=All", 1),
		},
		"only answered requests": {
			log: strings.Replace(line(ours, "create", group, "machines", "", 201), "ResponseComplete", "RequestReceived", 1),
		},
		"no requests without a resource": {
			log: `{"stage":"ResponseComplete","requestURI":"/readyz","verb":"get","user":{"username":"x"},"responseStatus":{"code":200}}` + "\n",
		},
		"only these users": {
			log: line(ours, "create", group, "machines", "", 201) +
				line("kubelet", "create", group, "machines", "", 201) +
				line("provider", "create", group, "machines", "", 201),
			filter: Filter{Users: []string{ours, "provider"}},
			want:   Counts{Writes: 2, ByCall: map[Call]int{create: 2}},
		},
		"only these users and a matching resource": {
			log: line(ours, "create", group, "machines", "", 201) +
				line(ours, "create", group, "machinesets", "", 201) +
				line("kubelet", "create", group, "machines", "", 201),
			filter: Filter{Users: []string{ours}, Match: func(r Request) bool { return r.Resource == "machines" }},
			want:   Counts{Writes: 1, ByCall: map[Call]int{create: 1}},
		},
		"not a line that is still being written": {
			log:  line(ours, "create", group, "machines", "", 201) + line(ours, "create", group, "machines", "", 201)[:100],
			want: Counts{Writes: 1, ByCall: map[Call]int{create: 1}},
		},
		"not the half line of a killed API server, but the entry of its successor in the same line": {
			log:  line(ours, "create", group, "machines", "", 201)[:100] + line(ours, "create", group, "machines", "", 201),
			want: Counts{Writes: 1, ByCall: map[Call]int{create: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := open(t, test.log)
			if test.want.ByCall == nil {
				test.want.ByCall = map[Call]int{}
			}
			got, err := log.Count(test.filter)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarkExcludesEarlierRequests(t *testing.T) {
	write := line("manager", "create", "", "pods", "", 201)
	log := open(t, write+write+write[:50])

	if err := log.Mark(); err != nil {
		t.Fatal(err)
	}
	// Count includes a line that was incomplete when Mark was called and is complete now.
	add(t, log.path, write[50:]+write)

	for range 2 { // Count does not move the mark.
		got, err := log.Count(Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Writes != 2 {
			t.Errorf("%d writes since the mark, want 2", got.Writes)
		}
	}
}

func TestTakeContinuesWhereItEnded(t *testing.T) {
	write := line("manager", "create", "", "pods", "", 201)
	log := open(t, write+write+write[:50])
	for i, want := range []int{2, 0, 2} {
		if i == 2 {
			add(t, log.path, write[50:]+write)
		}
		got, err := log.Take(Filter{Users: []string{"manager"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != want || CountWrites(got).Writes != want {
			t.Errorf("Take returned %d requests in call %d, want %d: %+v", len(got), i+1, want, got)
		}
	}
}

func TestARequestHasItsTimes(t *testing.T) {
	log := open(t, strings.Replace(line("manager", "create", "", "pods", "", 201), `"level"`,
		`"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:06.000007Z","level"`, 1))
	got, err := log.Requests(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	received := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	if len(got) != 1 || !got[0].ReceivedAt.Equal(received) ||
		!got[0].AnsweredAt.Equal(received.Add(time.Second+time.Microsecond)) {
		t.Errorf("requests %+v, want one received at %s and answered a second later", got, received)
	}
}

func TestRequestsIncludesReads(t *testing.T) {
	const outside = `{"stage":"ResponseComplete","requestURI":"/readyz?verbose","verb":"get","user":{"username":"manager"},"responseStatus":{"code":403},` +
		`"annotations":{"authorization.k8s.io/decision":"forbid"}}` + "\n"
	const ending = `{"stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods","verb":"create","user":{"username":"manager"},` +
		`"objectRef":{"resource":"pods","namespace":"default"},` +
		`"responseStatus":{"code":403,"details":{"causes":[{"reason":"NamespaceTerminating","field":"metadata.namespace"}]}}}` + "\n"
	log := open(t, line("manager", "list", "", "pods", "", 200)+line("manager", "create", "", "pods", "eviction",
		429)+outside+ending)
	got, err := log.Requests(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	authenticated := []string{"system:authenticated"}
	want := []Request{
		{User: "manager", Groups: authenticated, Verb: "list", Resource: "pods", Namespace: "default", Name: "a", Code: 200},
		{User: "manager", Groups: authenticated, Verb: "create", Resource: "pods", Subresource: "eviction",
			Namespace: "default", Name: "a", Code: 429},
		{User: "manager", Verb: "get", Path: "/readyz", Code: 403, Denied: true},
		{User: "manager", Verb: "create", Resource: "pods", Namespace: "default", Code: 403, NamespaceEnds: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestStringOfCounts(t *testing.T) {
	status := line("manager", "patch", "machinist.dev", "machines", "status", 200)
	log := open(t, line("manager", "create", "", "secrets", "", 201)+status+status+line("manager", "create", "",
		"events", "", 201))
	got, err := log.Count(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "3 writes, 1 events, 0 conflicts, 0 failed\n" +
		"       2 patch machines.machinist.dev/status\n" +
		"       1 create secrets"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestAFileThatIsNotAnAuditLogIsAnError(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a log that does not exist was opened")
	}
	log := open(t, "W1121 10:47:57 something else\n")
	if counts, err := log.Count(Filter{}); err == nil {
		t.Errorf("Count() = %v for a file that is not an audit log, want an error", counts)
	}
}

func open(t *testing.T, content string) *Log {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	add(t, path, content)
	log, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func add(t *testing.T, path, content string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(content); err != nil {
		t.Fatal(err)
	}
}
