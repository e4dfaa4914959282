// Package consul is the registry of a mesh with Consul: the agent's catalog, TTL checks and blocking health queries.
//
// A service entry has id SERVICE/ID and one TTL check, which passes only while the process's own check does. When the
// agent forgot the entry (a restart, or DeregisterCriticalServiceAfter), the next beat registers it again. While Consul
// is away, watchers keep the last good set, and for two TTLs after its return also the instances that have not beaten
// yet. Tests run against a real server; see consultest.
package consul
