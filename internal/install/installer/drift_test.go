package installer

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// Rule: nothing-written-when-as-desired.
func TestCovers(t *testing.T) {
	const desired = `
spec:
  replicas: 2
  enabled: false
  empty: ""
  none: []
  template:
    spec:
      containers:
        - name: main
          args: [--a, --b]
          resources: {requests: {cpu: 1000m, memory: 128Mi}}
          env: [{name: A, value: "1"}]
          ports: [{name: probes, containerPort: 8081}]
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list]}
subjects:
  - {kind: ServiceAccount, name: a, namespace: b}
`
	for name, test := range map[string]struct {
		found string
		same  bool
	}{
		"as the API server returns it": {`
spec:
  replicas: 2
  strategy: {type: RollingUpdate}
  template:
    metadata: {}
    spec:
      restartPolicy: Always
      containers:
        - name: injected
        - name: main
          imagePullPolicy: Always
          args: [--a, --b]
          resources: {requests: {cpu: "1", memory: 128Mi}}
          env: [{name: B, value: "2"}, {name: A, value: "1"}]
          ports: [{name: probes, containerPort: 8081, protocol: TCP}]
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list]}
subjects:
  - {kind: ServiceAccount, name: a, namespace: b}
`, true},
		"other replicas": {`
spec:
  replicas: 3
`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hasAllFields(parsed(t, test.found), parsed(t, desired)); got != test.same {
				t.Errorf("got %t", got)
			}
		})
	}
	for name, change := range map[string]func(m map[string]any){
		"replicas":              func(m map[string]any) { at(m, "spec")["replicas"] = int64(3) },
		"a field removed":       func(m map[string]any) { delete(at(m, "spec"), "replicas") },
		"an argument added":     func(m map[string]any) { container(m)["args"] = []any{"--a", "--b", "--c"} },
		"an argument changed":   func(m map[string]any) { container(m)["args"] = []any{"--a", "--c"} },
		"a request":             func(m map[string]any) { at(container(m), "resources", "requests")["memory"] = "256Mi" },
		"an env changed":        func(m map[string]any) { container(m)["env"] = []any{map[string]any{"name": "A", "value": "2"}} },
		"the container removed": func(m map[string]any) { at(m, "spec", "template", "spec")["containers"] = []any{} },
		"a rule added":          func(m map[string]any) { m["rules"] = append(m["rules"].([]any), map[string]any{}) },
		"a subject added":       func(m map[string]any) { m["subjects"] = append(m["subjects"].([]any), map[string]any{}) },
		"no rules":              func(m map[string]any) { m["rules"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			found := parsed(t, desired)
			if !hasAllFields(found, parsed(t, desired)) {
				t.Fatal("an object differs from itself")
			}
			change(found)
			if hasAllFields(found, parsed(t, desired)) {
				t.Error("the change was not detected")
			}
		})
	}
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func at(m map[string]any, path ...string) map[string]any {
	for _, name := range path {
		m = m[name].(map[string]any)
	}
	return m
}

func container(m map[string]any) map[string]any {
	return at(m, "spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
}
