package server

import (
	"net/http"

	"machinist.dev/machinist/simcloud"
)

func (s *Server) routeAdmin() {
	for pattern, do := range map[string]func(r *http.Request) (any, error){
		"GET /admin/v1/faults":                                                   s.listFaults,
		"POST /admin/v1/faults":                                                  s.addFault,
		"DELETE /admin/v1/faults":                                                s.clearFaults,
		"DELETE /admin/v1/faults/{id}":                                           s.removeFault,
		"GET /admin/v1/instances":                                                s.dump,
		"POST /admin/v1/instances/{id}/faults":                                   s.addInstanceFault,
		"GET /admin/v1/settings":                                                 s.getSettings,
		"PATCH /admin/v1/settings":                                               s.patchSettings,
		"PUT /admin/v1/accounts/{account}/quotas/{region}":                       s.setQuota,
		"PUT /admin/v1/accounts/{account}/token":                                 s.setToken,
		"PUT /admin/v1/regions/{region}/zones/{zone}/capacities/{instance_type}": s.setCapacity,
		"GET /admin/v1/statistics":                                               s.getStatistics,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if s.adminToken == "" || !sameSecret(bearer(r), s.adminToken) {
				s.fail(w, failf(simcloud.CodeUnauthorized, "the admin token is missing or wrong"))
				return
			}
			result, err := do(r)
			if err != nil {
				s.fail(w, err)
				return
			}
			s.succeed(w, result, 0)
		})
	}
}

func (s *Server) listFaults(*http.Request) (any, error) {
	return simcloud.FaultList{Faults: s.rules.List()}, nil
}

func (s *Server) addFault(r *http.Request) (any, error) {
	var rule simcloud.FaultRule
	if err := decode(r, &rule); err != nil {
		return nil, err
	}
	return s.rules.Add(rule)
}

func (s *Server) clearFaults(*http.Request) (any, error) { return nil, s.rules.Remove("") }

func (s *Server) removeFault(r *http.Request) (any, error) {
	return nil, s.rules.Remove(r.PathValue("id"))
}

func (s *Server) dump(*http.Request) (any, error) { return s.cloud.Dump(), nil }

func (s *Server) addInstanceFault(r *http.Request) (any, error) {
	var f simcloud.InstanceFault
	if err := decode(r, &f); err != nil {
		return nil, err
	}
	return s.cloud.AddFault(r.PathValue("id"), f)
}

func (s *Server) getSettings(*http.Request) (any, error) { return s.cloud.Settings(), nil }

func (s *Server) patchSettings(r *http.Request) (any, error) {
	var patch simcloud.SettingsPatch
	if err := decode(r, &patch); err != nil {
		return nil, err
	}
	return s.cloud.PatchSettings(patch)
}

func (s *Server) setQuota(r *http.Request) (any, error) {
	var quota simcloud.Quota
	if err := decode(r, &quota); err != nil {
		return nil, err
	}
	return nil, s.cloud.SetQuota(r.PathValue("account"), r.PathValue("region"), quota)
}

func (s *Server) setToken(r *http.Request) (any, error) {
	var token simcloud.Token
	if err := decode(r, &token); err != nil {
		return nil, err
	}
	return nil, s.cloud.SetToken(r.PathValue("account"), token.Token)
}

func (s *Server) setCapacity(r *http.Request) (any, error) {
	var capacity simcloud.Capacity
	if err := decode(r, &capacity); err != nil {
		return nil, err
	}
	return nil, s.cloud.SetCapacity(r.PathValue("region"), r.PathValue("zone"), r.PathValue("instance_type"),
		capacity.Instances)
}

func (s *Server) getStatistics(*http.Request) (any, error) {
	out := s.statistics.snapshot()
	s.cloud.Count(out)
	return out, nil
}
