package dlock.spring.boot;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;

/** The settings {@code dlock.*} of an application. The default of an absent one is that of the client's builder. */
@ConfigurationProperties("dlock")
public class DLockProperties {
    /** Where the servers are. */
    private String url;
    /** The beginning of the names of owners. */
    private String owner;
    /** The time for connecting, and for replies to commands that do not wait. */
    private Duration timeout;
    /** The time after which an unanswered command fails. */
    private Duration patience;
    /** The lease of locks without one. The client renews it. */
    private Duration lease;
    /** The beginning of the keys of the lock registry. */
    private String registryPrefix = "lock:";

    public String getUrl() {
        return url;
    }

    public void setUrl(String url) {
        this.url = url;
    }

    public String getOwner() {
        return owner;
    }

    public void setOwner(String owner) {
        this.owner = owner;
    }

    public Duration getTimeout() {
        return timeout;
    }

    public void setTimeout(Duration timeout) {
        this.timeout = timeout;
    }

    public Duration getPatience() {
        return patience;
    }

    public void setPatience(Duration patience) {
        this.patience = patience;
    }

    public Duration getLease() {
        return lease;
    }

    public void setLease(Duration lease) {
        this.lease = lease;
    }

    public String getRegistryPrefix() {
        return registryPrefix;
    }

    public void setRegistryPrefix(String registryPrefix) {
        this.registryPrefix = registryPrefix;
    }
}
