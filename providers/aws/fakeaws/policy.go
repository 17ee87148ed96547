package fakeaws

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Policy is an IAM policy. The fake supports statements that allow actions on the resource "*" or on a kind of
// resources such as "arn:aws:ec2:*:*:volume/*", with the conditions StringEquals and Null.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
type Policy struct {
	Version   string      `json:"Version"`
	Statement []Statement `json:"Statement"`
}

// Statement is a statement of a policy.
type Statement struct {
	Sid       string                       `json:"Sid"`
	Effect    string                       `json:"Effect"`
	Action    []string                     `json:"Action"`
	Resource  []string                     `json:"Resource"`
	Condition map[string]map[string]string `json:"Condition,omitempty"`
}

// ParsePolicy parses a policy and refuses what the fake does not support.
func ParsePolicy(raw []byte) (*Policy, error) {
	var p Policy
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return nil, err
	}
	for _, s := range p.Statement {
		if s.Effect != "Allow" || len(s.Action) == 0 || len(s.Resource) == 0 {
			return nil, fmt.Errorf("statement %q does not allow actions on resources", s.Sid)
		}
		for operator, terms := range s.Condition {
			if operator != "StringEquals" && operator != "Null" {
				return nil, fmt.Errorf("statement %q has the unknown operator %q", s.Sid, operator)
			}
			for key := range terms {
				if !strings.HasPrefix(key, "aws:ResourceTag/") && !strings.HasPrefix(key, "aws:RequestTag/") &&
					key != "ec2:CreateAction" && key != "iam:PassedToService" {
					return nil, fmt.Errorf("statement %q has the unknown condition key %q", s.Sid, key)
				}
			}
		}
	}
	return &p, nil
}

// qualified returns the action with its service, such as "ec2:RunInstances".
func (c *call) qualified() string {
	return map[protocol]string{protocolEC2: "ec2:", protocolQuery: "sts:", protocolJSON: "sqs:"}[c.protocol] +
		map[string]string{"DeleteMessageBatch": "DeleteMessage"}[c.action] +
		map[bool]string{true: c.action}[c.action != "DeleteMessageBatch"]
}

// permit checks the permission for a kind of resources, such as "volume", with the tags of the resource and the tags
// in the request. An empty kind checks only that the policy contains the action.
func (c *call) permit(kind string, tags, requested map[string]string) *failure {
	p := c.aws.options.Policy
	if p == nil || c.protocol == protocolQuery {
		return nil // For STS, the trust policy of the role decides.
	}
	if kind != "" && len(requested) > 0 && c.action == "RunInstances" {
		// Tags in the call that creates a resource need the permission for CreateTags.
		if !p.allows(c.aws, "ec2:CreateTags", kind, tags, requested, "RunInstances") {
			return c.unauthorized("ec2:CreateTags")
		}
	}
	if !p.allows(c.aws, c.qualified(), kind, tags, requested, "") {
		return c.unauthorized(c.qualified())
	}
	return nil
}

// permitProfile checks the permission to give an instance profile to an instance.
func (c *call) permitProfile(arn string) *failure {
	if p := c.aws.options.Policy; arn != "" && p != nil &&
		!p.allows(c.aws, "iam:PassRole", "role", nil, nil, "ec2.amazonaws.com") {
		return c.unauthorized("iam:PassRole")
	}
	return nil
}

func (p *Policy) allows(a *AWS, action, kind string, tags, requested map[string]string, context string) bool {
	allowed := false
	for _, s := range p.Statement {
		if !slices.Contains(s.Action, action) || kind != "" && !s.covers(kind) ||
			kind != "" && !s.meets(tags, requested, context) {
			continue
		}
		allowed = true
		if kind != "" || len(s.Condition) == 0 {
			a.used[action] = true
		}
	}
	return allowed
}

func (s Statement) covers(kind string) bool {
	return slices.ContainsFunc(s.Resource, func(r string) bool {
		return r == "*" || strings.HasSuffix(r, ":"+kind+"/*")
	})
}

// meets evaluates the conditions. The context is the value of ec2:CreateAction or iam:PassedToService.
func (s Statement) meets(tags, requested map[string]string, context string) bool {
	value := func(key string) (string, bool) {
		if name, ok := strings.CutPrefix(key, "aws:ResourceTag/"); ok {
			v, has := tags[name]
			return v, has
		}
		if name, ok := strings.CutPrefix(key, "aws:RequestTag/"); ok {
			v, has := requested[name]
			return v, has
		}
		return context, context != ""
	}
	for operator, terms := range s.Condition {
		for key, want := range terms {
			have, has := value(key)
			if operator == "Null" && (want == "true") == has || operator == "StringEquals" && (!has || have != want) {
				return false
			}
		}
	}
	return true
}

// UsedActions returns the actions of the policy that have allowed a call.
func (a *AWS) UsedActions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.used))
}

// unauthorized is the answer to a call that the policy does not allow. The real message is encoded.
func (c *call) unauthorized(action string) *failure {
	if c.protocol != protocolEC2 {
		return fail(http.StatusForbidden, "AccessDenied", "User is not authorized to perform: %s", action)
	}
	digest := sha256.Sum256([]byte(action + c.key))
	return fail(http.StatusForbidden, "UnauthorizedOperation",
		"You are not authorized to perform this operation. User: %s is "+
			"not authorized to perform: %s. Encoded authorization failure message: %s", c.aws.iamARN("user/machinist"),
		action, base64.RawURLEncoding.EncodeToString(digest[:]))
}
