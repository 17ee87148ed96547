package manifests

func budgets() []InvalidObject {
	spec := func(field string, value any) Changes { return Changes{"spec/" + field: value} }
	window := func(schedule, zone string, duration any) Changes {
		return spec("windows", []any{map[string]any{"schedule": schedule, "timeZone": zone, "duration": duration}})
	}
	const first = "spec.windows[0]"
	all := table(BySchema, "MachineDisruptionBudget", Budget,
		entry{"without a selector", spec("selector", nil), reports("spec.selector")},
		entry{"with an invalid selector", spec("selector", MatchLabels("my pool", "a")),
			reports("spec.selector.matchLabels")},
		entry{"with a selector with an unknown operator",
			spec("selector", map[string]any{"matchExpressions": []any{map[string]any{"key": "pool", "operator": "Gt",
				"values": []string{"1"}}}}), reports("spec.selector.matchExpressions[0].operator")},
		entry{"without maxDisrupted", spec("maxDisrupted", nil), reports("spec.maxDisrupted")},
		entry{"with maxDisrupted over 100 percent", spec("maxDisrupted", "101%"), reports("spec.maxDisrupted")},
		entry{"with maxDisrupted in words", spec("maxDisrupted", "many"), reports("spec.maxDisrupted")},
		entry{"with a negative maxDisrupted", spec("maxDisrupted", -1), reports("spec.maxDisrupted")},
		entry{"with maxDisrupted of 2^31", spec("maxDisrupted", int64(1)<<31), reports("spec.maxDisrupted")},
		entry{"with an unknown reason", spec("reasons", []any{"Boredom"}), reports("spec.reasons[0]")},
		entry{"with a duplicate reason", spec("reasons", []any{"Rollout", "Rollout"}), reports("spec.reasons[1]")},
		entry{"with an unknown value of apply", spec("apply", "Around"), reports("spec.apply")},
		entry{"with a window without a schedule", window("", "", "1h"), reports(first + ".schedule")},
		entry{"with a window without a duration", window("0 22 * * *", "", nil), reports(first + ".duration")},
		entry{"with a window with a duration in words", window("0 22 * * *", "", "8 hours"), reports(first + ".duration")},
		entry{"with a window that is too short", window("0 22 * * *", "", "59s"), reports(first + ".duration")},
		entry{"with a window that is too long", window("0 22 * * *", "", "168h0m1s"), reports(first + ".duration")},
		entry{"with a time zone that is too long", window("0 22 * * *", a(65), "1h"), reports(first + ".timeZone")},
		entry{"with a schedule that is too long", window(a(257), "", "1h"), reports(first + ".schedule")},
		entry{"with too many windows", spec("windows", many(17, func(int) any {
			return map[string]any{"schedule": "0 22 * * *", "duration": "1h"}
		})), reports("spec.windows")},
	)
	return append(all, table(ByManager, "MachineDisruptionBudget", Budget,
		entry{"with a schedule in words", window("at night", "", "1h"), reports(first + ".schedule")},
		entry{"with a schedule that never matches", window("0 0 30 2 *", "", "1h"), reports(first+".schedule", "never matches")},
		entry{"with a schedule without a time", window("@every 1h", "", "1h"), reports(first + ".schedule")},
		entry{"with a time zone in its schedule", window("TZ=UTC 0 22 * * *", "", "1h"), reports(first+".schedule", "timeZone")},
		entry{"with an unknown time zone", window("0 22 * * *", "Europe/Atlantis", "1h"), reports(first + ".timeZone")},
		entry{"with the time zone Local", window("0 22 * * *", "Local", "1h"), reports(first + ".timeZone")},
		entry{"with a fraction of a second", window("0 22 * * *", "", "90.5s"), reports(first + ".duration")},
		entry{"that applies outside of windows and has no windows", spec("apply", "Outside"), reports("spec.windows")},
	)...)
}
