package apimodel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small is an API in the format of the published files.
const small = `{
	"metadata": {"protocol": "PROTOCOL"},
	"operations": {"PaintThings": {"input": {"shape": "In"}, "output": {"shape": "Out"}}},
	"shapes": {
		"In": {"type": "structure", "required": ["Color"], "members": {
			"Color": {"shape": "Color"}, "Count": {"shape": "Count", "locationName": "count"},
			"Names": {"shape": "Names", "locationName": "Name", "queryName": "ThingName"}}},
		"Out": {"type": "structure", "members": {"Things": {"shape": "Things", "locationName": "thingSet"},
			"Done": {"shape": "Flag", "locationName": "done"}}},
		"Color": {"type": "string", "enum": ["red", "blue"]},
		"Count": {"type": "integer", "min": 1, "max": 9},
		"Flag": {"type": "boolean"},
		"Names": {"type": "list", "member": {"shape": "Text", "locationName": "item"}},
		"Things": {"type": "list", "member": {"shape": "Thing", "locationName": "item"}},
		"Thing": {"type": "structure", "required": ["Made"], "members": {
			"Made": {"shape": "Time", "locationName": "made"}, "Color": {"shape": "Color", "locationName": "color"}}},
		"Text": {"type": "string"}, "Time": {"type": "timestamp"}
	}
}`

func smallModel(t *testing.T, exceptions ...string) *Model {
	t.Helper()
	dir := t.TempDir()
	for name, version := range map[string]string{"ec2": "2016-11-15", "sqs": "2012-11-05", "sts": "2011-06-15"} {
		folder := filepath.Join(dir, name, version)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		protocol := map[string]string{"ec2": "ec2"}[name]
		text := strings.Replace(small, "PROTOCOL", protocol, 1)
		if err := os.WriteFile(filepath.Join(folder, "service-2.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Load(dir, exceptions...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func checkProblems(t *testing.T, what string, problems []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(problems) > 0:
		t.Errorf("%s: got the problems %q, want none", what, problems)
	case want != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0], want)):
		t.Errorf("%s: got the problems %q, want one with the prefix %q", what, problems, want)
	}
}

func TestRequests(t *testing.T) {
	m := smallModel(t)
	for form, want := range map[string]string{
		"Action=PaintThings&Color=red&Count=3&ThingName.1=a&ThingName.2=b": "",
		"Action=PaintNothing&Color=red":                                    "PaintNothing: the action",
		"Action=PaintThings":                                               "PaintThings.Color: the member is required",
		"Action=PaintThings&Color=green":                                   "PaintThings.Color: the value",
		"Action=PaintThings&Color=red&Count=ten":                           "PaintThings.Count: \"ten\"",
		"Action=PaintThings&Color=red&Count=10":                            "PaintThings.Count: 10",
		"Action=PaintThings&Color=red&Size=1":                              "PaintThings.Size: the member does not exist",
		"Action=PaintThings&Color=red&Name.1=a":                            "PaintThings.Name: the member does not exist",
		"Action=PaintThings&Color=red&ThingName.2=a":                       "PaintThings.ThingName: the entries",
		"Action=PaintThings&Color.1=red":                                   "PaintThings.Color: a value of type string has members",
	} {
		_, problems := m.query("ec2", []byte(form))
		checkProblems(t, form, problems, want)
	}
}

func TestAnswers(t *testing.T) {
	m := smallModel(t)
	for body, want := range map[string]string{
		"<done>true</done><thingSet><item><made>2026-01-02T03:04:05.000Z</made></item></thingSet>": "",
		"<return>true</return>":                              "",
		"<color>red</color>":                                 "PaintThingsResponse.color: the member does not exist",
		"<done>yes</done>":                                   "PaintThingsResponse.done: \"yes\"",
		"<done>true</done><done>true</done>":                 "PaintThingsResponse.done: the member exists twice",
		"<thingSet><thing/></thingSet>":                      "PaintThingsResponse.thingSet: an entry",
		"<thingSet><item/></thingSet>":                       "PaintThingsResponse.thingSet.made: the member is required",
		"<thingSet><item><made>now</made></item></thingSet>": "PaintThingsResponse.thingSet.made: \"now\"",
		"<thingSet><item><made>2026-01-02T03:04:05Z</made><color>pink</color></item></thingSet>": "PaintThingsResponse.thingSet.color: " +
			"the value",
	} {
		text := "<PaintThingsResponse><requestId>1</requestId>" + body + "</PaintThingsResponse>"
		checkProblems(t, body, m.answer("ec2", "PaintThings", 200, []byte(text)), want)
	}
	for body, want := range map[string]string{
		"<Response><Errors><Error><Code>A</Code><Message>b</Message></Error></Errors></Response>": "",
		"<Response><Errors/></Response>": "PaintThings: the error has no code",
		"<Error/>":                       "PaintThings: the root of the error",
	} {
		checkProblems(t, body, m.answer("ec2", "PaintThings", 400, []byte(body)), want)
	}
}

func TestExceptions(t *testing.T) {
	m := smallModel(t, "PaintThings.Size")
	_, problems := m.query("ec2", []byte("Action=PaintThings&Color=red&Size=1"))
	checkProblems(t, "an exception", problems, "")
}

func TestMissingPackageIsAnError(t *testing.T) {
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "python3-botocore") {
		t.Errorf("Load without the files returns %v", err)
	}
}
