package apimodel

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Model contains the APIs of several services.
type Model struct {
	services map[string]*service // by the name in a signature, such as "ec2"
	// exceptions are members and values that are newer than the published files.
	exceptions map[string]bool
}

type service struct {
	Metadata struct {
		Protocol string `json:"protocol"`
	} `json:"metadata"`
	Operations map[string]operation `json:"operations"`
	Shapes     map[string]*shape    `json:"shapes"`
}

type operation struct {
	Input  *reference `json:"input"`
	Output *reference `json:"output"`
}

// reference is the use of a shape as a member.
type reference struct {
	Shape         string `json:"shape"`
	LocationName  string `json:"locationName"`
	QueryName     string `json:"queryName"`
	ResultWrapper string `json:"resultWrapper"`
	Flattened     bool   `json:"flattened"`
}

// shape is a type.
type shape struct {
	Type      string                `json:"type"`
	Required  []string              `json:"required"`
	Members   map[string]*reference `json:"members"`
	Member    *reference            `json:"member"`
	Enum      []string              `json:"enum"`
	Flattened bool                  `json:"flattened"`
	Max       *float64              `json:"max"`
	Min       *float64              `json:"min"`
}

// Load reads the files of some services. The folder is the folder data of the Python package botocore. An exception
// is a path in a problem that Check reports, such as "RunInstances.Placement.Tenancy".
func Load(data string, exceptions ...string) (*Model, error) {
	m := &Model{services: map[string]*service{}, exceptions: map[string]bool{}}
	for _, path := range exceptions {
		m.exceptions[path] = true
	}
	for name, version := range map[string]string{"ec2": "2016-11-15", "sqs": "2012-11-05", "sts": "2011-06-15"} {
		raw, err := os.ReadFile(filepath.Join(data, name, version, "service-2.json"))
		if err != nil {
			return nil, fmt.Errorf("read the published API: %w; install Debian's package python3-botocore", err)
		}
		s := &service{}
		if err := json.Unmarshal(raw, s); err != nil {
			return nil, fmt.Errorf("parse the published API of %s: %w", name, err)
		}
		if len(s.Operations) == 0 || len(s.Shapes) == 0 {
			return nil, fmt.Errorf("the published API of %s is empty", name)
		}
		m.services[name] = s
	}
	return m, nil
}

// wireName returns the name of a member in a request.
func (s *service) wireName(member string, r *reference) string {
	if s.Metadata.Protocol == "ec2" {
		switch {
		case r.QueryName != "":
			return r.QueryName
		case r.LocationName != "":
			return strings.ToUpper(r.LocationName[:1]) + r.LocationName[1:]
		}
		return member
	}
	if r.LocationName != "" {
		return r.LocationName
	}
	return member
}

// answerName returns the name of a member in an answer.
func answerName(member string, r *reference) string {
	if r.LocationName != "" {
		return r.LocationName
	}
	return member
}
