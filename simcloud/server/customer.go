package server

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/fault"
)

type call struct {
	account string
	// instance contains the properties that fault rules are compared with: see fault.Call.
	instance *simcloud.Instance
	// execute performs the call. If the call creates an instance, the faults are added to the instance.
	execute func(faults []simcloud.InstanceFault) (any, error)
}

// prepare decodes a request. The errors of prepare take precedence over faults.
type prepare func(r *http.Request, account string) (call, error)

func (s *Server) routeCustomer() {
	for _, route := range []struct {
		pattern   string
		operation string
		prepare   prepare
	}{
		{"POST /v1/instances", simcloud.OperationCreateInstance, s.createInstance},
		{"GET /v1/instances", simcloud.OperationListInstances, s.listInstances},
		{"GET /v1/instances/{id}", simcloud.OperationGetInstance, s.getInstance},
		{"DELETE /v1/instances/{id}", simcloud.OperationDeleteInstance, s.deleteInstance},
		{"PATCH /v1/instances/{id}", simcloud.OperationUpdateInstance, s.updateInstance},
		{"PUT /v1/instances/{id}/tags", simcloud.OperationUpdateTags, s.updateTags},
		{"POST /v1/instances/{id}/stop", simcloud.OperationStopInstance, s.stopInstance},
		{"POST /v1/instances/{id}/start", simcloud.OperationStartInstance, s.startInstance},
		{"GET /v1/addresses", simcloud.OperationListAddresses, s.listAddresses},
		{"DELETE /v1/addresses/{id}", simcloud.OperationDeleteAddress, s.deleteAddress},
		{"GET /v1/instances/{id}/console", simcloud.OperationConsoleOutput, s.consoleOutput},
		{"GET /v1/regions", simcloud.OperationListRegions, s.listRegions},
		{"GET /v1/instance-types", simcloud.OperationListInstanceTypes, s.listInstanceTypes},
		{"GET /v1/images", simcloud.OperationListImages, s.listImages},
	} {
		s.mux.HandleFunc(route.pattern, s.customer(route.operation, route.prepare))
	}
}

func (s *Server) customer(operation string, prepare prepare) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		account, ok := s.cloud.Authenticate(bearer(r))
		if !ok {
			s.finish(w, operation, nil, failf(simcloud.CodeUnauthorized, "the token is missing or wrong"))
			return
		}
		c, err := prepare(r, account)
		if err != nil {
			s.finish(w, operation, nil, err)
			return
		}
		d, err := s.rules.Decide(fault.Call{Operation: operation, Account: account, Instance: c.instance})
		if err != nil {
			s.finish(w, operation, nil, err)
			return
		}
		if !s.wait(d.DelayBefore) {
			s.finish(w, operation, nil, failf(simcloud.CodeUnavailable, "the cloud is shutting down"))
			return
		}
		var result any
		if !d.AnswerFails || d.IsExecuted {
			result, err = c.execute(d.Instance)
		}
		if !s.wait(d.DelayAfter) {
			err = failf(simcloud.CodeUnavailable, "the cloud is shutting down")
		}
		if d.AnswerFails && d.LateDelay > 0 {
			go func() {
				if s.wait(d.LateDelay) {
					_, _ = c.execute(d.Instance) // The caller already has an answer.
				}
			}()
		}
		if d.AnswerFails && d.Drop {
			s.statistics.count(operation, dropped)
			panic(http.ErrAbortHandler) // net/http then closes the connection without an answer.
		}
		if d.AnswerFails {
			err = d.Error
		}
		s.finish(w, operation, result, err)
	}
}

func (s *Server) finish(w http.ResponseWriter, operation string, result any, err error) {
	if err != nil {
		s.statistics.count(operation, outcome(err))
		s.fail(w, err)
		return
	}
	s.statistics.count(operation, "")
	s.succeed(w, result, s.cloud.Settings().Semantics.AnswerPadding)
}

func (s *Server) createInstance(r *http.Request, account string) (call, error) {
	var req simcloud.CreateInstanceRequest
	if err := decode(r, &req); err != nil {
		return call{}, err
	}
	return call{account, &simcloud.Instance{Name: req.Name, Type: req.Type, Region: req.Region, Zone: req.Zone,
		Tags: req.Tags},
		func(faults []simcloud.InstanceFault) (any, error) { return s.cloud.Create(account, req, faults) }}, nil
}

// onInstance returns a call for the instance in the path. The ID may be in upper case.
func (s *Server) onInstance(r *http.Request, account string, effect func(id string) (any, error)) (call, error) {
	id := strings.ToLower(r.PathValue("id"))
	instance, _ := s.cloud.Current(account, id)
	return call{account, instance, func([]simcloud.InstanceFault) (any, error) { return effect(id) }}, nil
}

func (s *Server) getInstance(r *http.Request, account string) (call, error) {
	return s.onInstance(r, account, func(id string) (any, error) { return s.cloud.Get(account, id) })
}

func (s *Server) deleteInstance(r *http.Request, account string) (call, error) {
	return s.onInstance(r, account, func(id string) (any, error) { return s.cloud.Delete(account, id) })
}

func (s *Server) updateInstance(r *http.Request, account string) (call, error) {
	var req simcloud.UpdateInstanceRequest
	if err := decode(r, &req); err != nil {
		return call{}, err
	}
	return s.onInstance(r, account, func(id string) (any, error) { return s.cloud.Update(account, id, req) })
}

func (s *Server) updateTags(r *http.Request, account string) (call, error) {
	var req simcloud.UpdateTagsRequest
	if err := decode(r, &req); err != nil {
		return call{}, err
	}
	return s.onInstance(r, account, func(id string) (any, error) { return s.cloud.UpdateTags(account, id, req) })
}

func (s *Server) stopInstance(r *http.Request, account string) (call, error) {
	var req simcloud.StopInstanceRequest
	if err := decode(r, &req); err != nil {
		return call{}, err
	}
	return s.onInstance(r, account, func(id string) (any, error) { return s.cloud.Stop(account, id, req) })
}

func (s *Server) startInstance(r *http.Request, account string) (call, error) {
	return s.onInstance(r, account, func(id string) (any, error) { return s.cloud.Start(account, id) })
}

func (s *Server) listAddresses(r *http.Request, account string) (call, error) {
	o, err := listOptions(r.URL.Query())
	if err != nil {
		return call{}, err
	}
	if o.Name != "" || len(o.States) > 0 {
		return call{}, failf(simcloud.CodeInvalidParameter,
			"name: a list of addresses cannot be filtered by name (%q) or state (%q)", o.Name, o.States)
	}
	return call{account, &simcloud.Instance{Region: o.Region, Zone: o.Zone, Tags: o.Tags},
		func([]simcloud.InstanceFault) (any, error) { return s.cloud.Addresses(account, o) }}, nil
}

func (s *Server) deleteAddress(r *http.Request, account string) (call, error) {
	id := strings.ToLower(r.PathValue("id"))
	return call{account, nil, func([]simcloud.InstanceFault) (any, error) {
		return nil, s.cloud.DeleteAddress(account, id)
	}}, nil
}

func (s *Server) consoleOutput(r *http.Request, account string) (call, error) {
	return s.onInstance(r, account, func(id string) (any, error) {
		output, err := s.cloud.Console(account, id)
		return simcloud.Console{Output: output}, err
	})
}

func (s *Server) listInstances(r *http.Request, account string) (call, error) {
	o, err := listOptions(r.URL.Query())
	if err != nil {
		return call{}, err
	}
	return call{account, &simcloud.Instance{Name: o.Name, Region: o.Region, Zone: o.Zone, Tags: o.Tags},
		func([]simcloud.InstanceFault) (any, error) { return s.cloud.List(account, o) }}, nil
}

// listOptions rejects unknown parameters, because ignoring them would return too many instances.
func listOptions(q url.Values) (simcloud.ListInstancesOptions, error) {
	o := simcloud.ListInstancesOptions{Tags: map[string]string{}}
	for name, values := range q {
		single := values[0]
		switch name {
		case "tag":
			for _, tag := range values {
				key, value, exact := strings.Cut(tag, "=")
				if other, twice := o.Tags[key]; twice && exact && other != value {
					return o, failf(simcloud.CodeInvalidParameter, "tag: %q has two values", key)
				}
				if exact {
					o.Tags[key] = value
				} else {
					o.HasTags = append(o.HasTags, key)
				}
			}
			continue
		case "state":
			for _, state := range values {
				o.States = append(o.States, simcloud.InstanceState(state))
			}
			continue
		case "name":
			o.Name = single
		case "region":
			o.Region = single
		case "zone":
			o.Zone = single
		case "nextToken":
			o.NextToken = single
		case "limit":
			limit, err := strconv.Atoi(single)
			if err != nil || limit < 1 {
				return o, failf(simcloud.CodeInvalidParameter, "limit: %q is not a positive number", single)
			}
			o.Limit = limit
		default:
			return o, failf(simcloud.CodeInvalidParameter, "%s: not a parameter of a list", name)
		}
		if len(values) > 1 {
			return o, failf(simcloud.CodeInvalidParameter, "%s: the parameter occurs %d times", name, len(values))
		}
	}
	return o, nil
}

func (s *Server) listRegions(_ *http.Request, account string) (call, error) {
	return readOnlyCall(account, func() any { return simcloud.RegionList{Regions: s.cloud.Regions(account)} })
}

func (s *Server) listInstanceTypes(_ *http.Request, account string) (call, error) {
	return readOnlyCall(account, func() any { return simcloud.InstanceTypeList{InstanceTypes: s.cloud.InstanceTypes()} })
}

func (s *Server) listImages(_ *http.Request, account string) (call, error) {
	return readOnlyCall(account, func() any { return simcloud.ImageList{Images: s.cloud.Images()} })
}

// readOnlyCall returns a call that cannot fail and concerns no instance.
func readOnlyCall(account string, read func() any) (call, error) {
	return call{account, nil, func([]simcloud.InstanceFault) (any, error) { return read(), nil }}, nil
}
