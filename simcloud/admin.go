package simcloud

import (
	"context"
	"net/http"
)

// Admin is a client of the admin API, for the operator of the simulation. It is safe for concurrent use and returns the
// same kinds of errors as Client. Fault rules do not affect Admin.
type Admin struct{ t *transport }

// NewAdmin returns an admin client. Config.Token is the admin token. NewAdmin does not connect.
func NewAdmin(cfg Config) (*Admin, error) {
	t, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	return &Admin{t: t}, nil
}

// AddFault adds a rule and returns it with its ID.
func (a *Admin) AddFault(ctx context.Context, rule FaultRule) (*FaultRule, error) {
	var out FaultRule
	return result(&out, a.do(ctx, call{
		operation: "AddFault", method: http.MethodPost,
		path: []string{"faults"}, body: rule, result: &out,
	}))
}

// ListFaults returns the rules that are in force, in the order in which they were added.
func (a *Admin) ListFaults(ctx context.Context) ([]FaultRule, error) {
	var out FaultList
	err := a.do(ctx, call{
		operation: "ListFaults", method: http.MethodGet,
		path: []string{"faults"}, result: &out,
	})
	return out.Faults, err
}

// RemoveFault removes a rule. If the rule was already removed because it reached its count, the code is CodeNotFound.
func (a *Admin) RemoveFault(ctx context.Context, id string) error {
	return a.do(ctx, call{
		operation: "RemoveFault", method: http.MethodDelete,
		path: []string{"faults", id},
	})
}

// ClearFaults removes all rules, but not the faults of instances.
func (a *Admin) ClearFaults(ctx context.Context) error {
	return a.do(ctx, call{
		operation: "ClearFaults", method: http.MethodDelete,
		path: []string{"faults"},
	})
}

// AddInstanceFault adds a fault to an instance.
func (a *Admin) AddInstanceFault(ctx context.Context, id string, fault InstanceFault) (*Record, error) {
	var out Record
	return result(&out, a.do(ctx, call{
		operation: "AddInstanceFault", method: http.MethodPost,
		path: []string{"instances", id, "faults"}, body: fault, result: &out,
	}))
}

// Settings returns the current settings.
func (a *Admin) Settings(ctx context.Context) (*Settings, error) {
	var out Settings
	return result(&out, a.do(ctx, call{
		operation: "Settings", method: http.MethodGet,
		path: []string{"settings"}, result: &out,
	}))
}

// PatchSettings changes settings and returns all of them.
func (a *Admin) PatchSettings(ctx context.Context, patch SettingsPatch) (*Settings, error) {
	var out Settings
	return result(&out, a.do(ctx, call{
		operation: "PatchSettings", method: http.MethodPatch,
		path: []string{"settings"}, body: patch, result: &out,
	}))
}

// SetQuota replaces an account's quota in a region. Existing instances stay.
func (a *Admin) SetQuota(ctx context.Context, account, region string, quota Quota) error {
	return a.do(ctx, call{
		operation: "SetQuota", method: http.MethodPut,
		path: []string{"accounts", account, "quotas", region}, body: quota,
	})
}

// SetCapacity limits the number of instances of a type in a zone. If capacity is nil, there is no limit. Existing
// instances stay.
func (a *Admin) SetCapacity(ctx context.Context, region, zone, instanceType string, capacity *int) error {
	return a.do(ctx, call{
		operation: "SetCapacity", method: http.MethodPut,
		path: []string{"regions", region, "zones", zone, "capacities", instanceType},
		body: Capacity{Instances: capacity},
	})
}

// SetToken replaces an account's token. The cloud then refuses the old token.
func (a *Admin) SetToken(ctx context.Context, account, token string) error {
	return a.do(ctx, call{
		operation: "SetToken", method: http.MethodPut,
		path: []string{"accounts", account, "token"}, body: Token{Token: token},
	})
}

// Statistics returns the counters.
func (a *Admin) Statistics(ctx context.Context) (*Statistics, error) {
	var out Statistics
	return result(&out, a.do(ctx, call{
		operation: "Statistics", method: http.MethodGet,
		path: []string{"statistics"}, result: &out,
	}))
}

// Dump returns the complete state of the instances of all accounts.
func (a *Admin) Dump(ctx context.Context) (*Dump, error) {
	var out Dump
	return result(&out, a.do(ctx, call{
		operation: "Dump", method: http.MethodGet,
		path: []string{"instances"}, result: &out,
	}))
}

// FaultList is the result of ListFaults.
type FaultList struct {
	Faults []FaultRule `json:"faults"`
}

// Capacity is the request body of SetCapacity.
type Capacity struct {
	Instances *int `json:"instances"`
}

// Token is the request body of SetToken.
type Token struct {
	Token string `json:"token"`
}

func (a *Admin) do(ctx context.Context, call call) error {
	return a.t.do(ctx, "admin/v1", call)
}
